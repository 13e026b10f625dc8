#include "model/tokenizer_data.hpp"

#include <fmt/format.h>

#include "model/tokenizer_bpe.hpp"
#include "model/tokenizer_spm.hpp"

namespace troupe::model {

Result<std::unique_ptr<const Tokenizer>> make_tokenizer(const TokenizerData& data) {
    if (data.model == "gpt2") return BpeTokenizer::make(data);
    if (data.model == "llama") return SpmTokenizer::make(data);
    return Error{ErrorKind::unsupported,
                 fmt::format("the tokenizer kind '{}' (tokenizer.ggml.model) is not supported; "
                             "'gpt2' and 'llama' are",
                             data.model)};
}

}  // namespace troupe::model
