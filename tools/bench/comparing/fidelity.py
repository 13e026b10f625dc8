"""How far the next-token distributions are from those of the same file in float32."""

import math
import statistics

TEXT = ("Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
        "nothing to do: once or twice she had peeped into the book her sister was reading, but it "
        "had no pictures or conversations in it, \"and what is the use of a book,\" thought Alice "
        "\"without pictures or conversations?\" So she was considering in her own mind (as well as "
        "she could, for the hot day made her feel very sleepy and stupid), whether the pleasure of "
        "making a daisy-chain would be worth the trouble of getting up and picking the daisies, "
        "when suddenly a White Rabbit with pink eyes ran close by her.")
COUNT = 49152


def divergence(reference, other):
    """KL(reference || other) in nats. What `other` does not list has what is left of it, evenly."""
    missing = [token for token in reference if token not in other]
    rest = max(1e-12, 1.0 - sum(other.values()))
    share = rest / max(1, len(missing))
    return sum(p * math.log(p / max(other.get(token, share), 1e-30))
               for token, p in reference.items() if p > 0)


def compare(ours, peers, positions):
    """`peers`: {name: a LlamaCpp}. Rows: mean divergence, and the share of positions where the
    likeliest token is float32's, by program."""
    words = TEXT.split(" ")
    ends = [8 + i * (len(words) - 8) // positions for i in range(positions)]
    texts = [" ".join(words[:end]) for end in ends]
    exact = [ours.next_tokens(text, "float32", COUNT) for text in texts]
    found = {ours.name: [ours.next_tokens(text, "native", COUNT) for text in texts]}
    for name, peer in peers.items():
        with peer.start(1, 1024) as server:
            rows = [peer.next_tokens(server, ours.tokens(text), COUNT) for text in texts]
        found[name] = [{token: math.exp(p) for token, p in row.items()} for row in rows]
    return {name: {"fidelity_kl": statistics.mean(map(divergence, exact, rows)),
                   "fidelity_best": statistics.mean(
                       max(a, key=a.get) == max(b, key=b.get) for a, b in zip(exact, rows))}
            for name, rows in found.items()}
