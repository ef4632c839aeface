{
  # The native core. "Release" is what ships; "Debug" is the same code under AddressSanitizer and UBSan
  # (scripts/build-native.mjs --sanitize). Headers come from the source bundle inside node-llama-cpp.
  "variables": {
    "root%": "../..",
    "llama_source%": "../../build/llama.cpp",
    "llama_release%": "unknown",
    "llama_bins%": "../../node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
  },
  "target_defaults": {
    "default_configuration": "Release",
    "configurations": {
      "Release": { "cflags_cc": ["-O3", "-g0"] },
      "Debug": {
        "cflags_cc": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize=vptr"],
        "ldflags": ["-fsanitize=address,undefined"]
      }
    }
  },
  "targets": [
    {
      "target_name": "steerage_native",
      "sources": [
        "src/account_board.cc",
        "src/account_board_object.cc",
        "src/addon.cc",
        "src/async_task.cc",
        "src/batch_builder.cc",
        "src/chat_object.cc",
        "src/chat_templates.cc",
        "src/context_object.cc",
        "src/context_settings.cc",
        "src/decode_loop.cc",
        "src/draft_gain.cc",
        "src/draft_policy.cc",
        "src/embedder.cc",
        "src/embedder_object.cc",
        "src/eval_hook.cc",
        "src/gguf_file.cc",
        "src/grammar.cc",
        "src/hook_plan.cc",
        "src/hook_probe.cc",
        "src/hook_set.cc",
        "src/job.cc",
        "src/job_reader.cc",
        "src/js_values.cc",
        "src/live_loops.cc",
        "src/log_sink.cc",
        "src/logprobs.cc",
        "src/model_drafter.cc",
        "src/model_handle.cc",
        "src/model_object.cc",
        "src/native_error.cc",
        "src/ownership_check.cc",
        "src/prefill_budget.cc",
        "src/prompt_lookup.cc",
        "src/residual_edit.cc",
        "src/runtime.cc",
        "src/sae_encoder.cc",
        "src/sae_object.cc",
        "src/sampler_chain.cc",
        "src/speculation.cc",
        "src/step_events.cc",
        "src/step_events_writer.cc",
        "src/stop_matcher.cc",
        "src/thread_pool.cc",
        "src/vector_math.cc"
      ],
      "include_dirs": [
        "<(root)/node_modules/node-addon-api",
        "<(llama_source)/include",
        "<(llama_source)/ggml/include",
        "<(llama_source)/common",
        "<(llama_source)/vendor"
      ],
      "defines": [
        "NAPI_VERSION=9",
        "NODE_ADDON_API_CPP_EXCEPTIONS",
        "NODE_ADDON_API_DISABLE_DEPRECATED",
        # While the environment goes down nothing can be thrown into it; without this the process would abort instead.
        "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS",
        "STEERAGE_LLAMA_RELEASE=\"<(llama_release)\""
      ],
      "cflags!": ["-fno-exceptions"],
      "cflags_cc!": ["-fno-exceptions", "-fno-rtti"],
      "cflags_cc": ["-std=gnu++17", "-fexceptions", "-frtti", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-unused-function"],
      # By name only, and no path of this machine: each variant folder brings its own libllama under these two.
      "libraries": ["-L<(module_root_dir)/<(llama_bins)", "-l:libllama-common.so", "-l:libggml-base.so"],
      "ldflags": ["-Wl,--no-as-needed"]
    }
  ]
}
