/** A chat template that marks reasoning apart from the answer; the demo model's own does not. */
export const THINKING_TEMPLATE = `{%- for message in messages %}
{%- if message.role == 'assistant' and message.reasoning_content %}
{{- '<|im_start|>assistant\\n<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
{{- message.content + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}`;

/** A grammar that makes any model think. */
export const THINKS = String.raw`root ::= "<think>\nThe sea " [a-z ]{5,20} "\n</think>\n\nIt is " ("calm" | "wild") "."`;
