// From a file name (or a pulled model's, or "toy") to all that serving or trying a model needs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/backend.hpp"
#include "model/chat_template.hpp"
#include "model/gguf.hpp"
#include "model/load_progress.hpp"
#include "model/tokenizer.hpp"
#include "runtime/base/result.hpp"
#include "tools/troupe/flags.hpp"

namespace troupe::tools {

struct LoadedModel {
    std::unique_ptr<model::GgufFile> file;  // null for the toy; the backend reads it
    std::unique_ptr<const model::Tokenizer> tokenizer;
    std::unique_ptr<const model::ChatTemplate> chat_template;
    std::string id;                      // model::model_name()
    std::unique_ptr<LoadedModel> draft;  // proposes tokens, see load_draft_model
};

struct BackendFlags {
    std::string model;
    std::string backend = "auto";
    std::uint32_t gpu = 0;
    std::uint32_t gpus = 1;
    bool eager = false;  // without CUDA graphs
    std::uint32_t threads = 0;
    std::string arithmetic = "native";
    std::string instruction_set = "auto";
    std::string kv_type = "auto";
    std::uint32_t window = 0;
    std::uint32_t sinks = 0;
    std::uint64_t kv_memory_bytes = 0;
    std::uint32_t context_max = 0;
    std::uint32_t running_max = 256;
    std::uint32_t step_tokens_max = 512;
};

void add_backend_flags(Command& command, BackendFlags& flags);

// Tokenizer and template; cheap. "toy" is the built-in table model.
[[nodiscard]] Result<LoadedModel> load_model(const std::string& argument);

// Gives `loaded` the model that `argument` means as its draft model. Errors: those of loading;
// another vocabulary.
[[nodiscard]] Result<void> load_draft_model(LoadedModel& loaded, const std::string& argument);

// Weights and KV cache; of a draft model, too, where there is one. `loaded` must outlive the
// backend. Shows on stderr how far it is, and tells `watched`, which may be null.
[[nodiscard]] Result<std::unique_ptr<model::Backend>> make_backend(
    const LoadedModel& loaded, const BackendFlags& flags, model::LoadProgress* watched = nullptr);

}  // namespace troupe::tools
