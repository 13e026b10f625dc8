#include "model/tokenizer_data.hpp"

#include <fmt/format.h>

#include "model/tokenizer_bpe.hpp"
#include "model/tokenizer_spm.hpp"
#include "model/tokenizer_unigram.hpp"
#include "model/tokenizer_wordpiece.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

Result<std::unique_ptr<const Tokenizer>> make_tokenizer(TokenizerData data) {
    if (data.model == "gpt2") return BpeTokenizer::make(std::move(data));
    if (data.model == "llama") return SpmTokenizer::make(data);
    if (data.model == "t5") return UnigramTokenizer::make(std::move(data));
    if (data.model == "bert") return WordPieceTokenizer::make(std::move(data));
    return Error{ErrorKind::unsupported,
                 fmt::format("the tokenizer kind \"{}\" (tokenizer.ggml.model) is not supported; "
                             "these are: gpt2, gemma4, llama, t5, bert",
                             log::escaped(data.model, 60))};
}

}  // namespace troupe::model
