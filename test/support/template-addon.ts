import type { NativeAddon } from "../../backend/native/binding.ts";

/** The native core with models whose own chat template is another one: the demo model's marks no reasoning. */
export function addonWithTemplate(addon: NativeAddon, template: string): NativeAddon {
  return {
    interfaceVersion: addon.interfaceVersion,
    llamaRelease: addon.llamaRelease,
    initialize: (options) => addon.initialize(options),
    openAccountBoard: (path) => addon.openAccountBoard(path),
    loadSae: (tensors) => addon.loadSae(tensors),
    loadModel: async (options) => {
      const model = await addon.loadModel(options);
      const openChat = model.openChat.bind(model);
      return Object.defineProperty(model, "openChat", {
        value: (override: string | null) => openChat(override ?? template),
      });
    },
  };
}
