#include "tools/troupe/speculation_flags.hpp"

namespace troupe::tools {

void add_speculation_flags(Command& app, SpeculationFlags& flags) {
    const auto group = "Speculative decoding (the answers stay the same)";
    app.add("--speculation", flags.mode,
            "where drafts come from: lookup: repeated text; model: --draft-model; auto: both")
        .one_of({"auto", "off", "lookup", "model"})
        .group(group)
        .shows_default();
    app.add("--draft-model", flags.draft_model,
            "a GGUF file of a smaller model with the same vocabulary")
        .group(group);
}

Result<actors::SpeculationSettings> prepare_speculation(const SpeculationFlags& flags,
                                                        LoadedModel& loaded) {
    actors::SpeculationSettings settings;
    settings.lookup = flags.mode == "auto" || flags.mode == "lookup";
    settings.model = flags.mode == "auto" || flags.mode == "model";
    if (flags.mode == "model" && flags.draft_model.empty())
        return invalid_input("--speculation model needs --draft-model FILE");
    if (!settings.model || flags.draft_model.empty()) return settings;
    if (auto drafted = load_draft_model(loaded, flags.draft_model); !drafted)
        return drafted.error();
    return settings;
}

}  // namespace troupe::tools
