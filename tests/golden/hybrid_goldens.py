"""Goldens of the trained hybrid: what trained_goldens.py says of a checkpoint, what its draft head proposes, and how often that holds."""
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import draft_head
import hf
import trained_goldens

DEPTHS = 4
CONTINUED, START, STEPS, TEMPERATURE = 16, 32, 96, 0.6  # of the measurement: texts, tokens given of each, tokens to write
# As those of trained_goldens.py, but for the second, where this model has a close call.
PROMPTS = list(trained_goldens.PROMPTS)
PROMPTS[1] = "Ruth 1\n\nNow it came to pass in the days when the judges ruled,"


def load_head(directory, model):
    """The draft head of the bf16 file, upcast to fp32."""
    tensors = load_file(directory / "model.safetensors")
    head = draft_head.DraftHead(model.config)
    head.load_state_dict({n.removeprefix("mtp."): t.float() for n, t in tensors.items() if n.startswith("mtp.")}, strict=True)
    return head.eval()


def proposals(model, head, text, first):
    """Greedy drafts and margins [rows, DEPTHS] of steps whose last token is text[first], text[first + 1], ...; -1 behind a wrong one."""
    drafts, margins = draft_head.drafts_along(model, head, text, DEPTHS)
    for row in range(first, len(text)):
        for depth in range(1, DEPTHS):
            at = row + depth
            if at >= len(text) or drafts[row, depth - 1] != text[at]:
                drafts[row, depth:], margins[row, depth:] = -1, 0.0
                break
    return drafts[first:], margins[first:]


def acceptance(model, head, texts):
    """Tokens a step, and the share of accepted drafts, of greedy decoding with 1 to DEPTHS drafts a step. texts: [(ids, tokens given)]."""
    totals = {k: [0, 0, 0] for k in range(1, DEPTHS + 1)}
    for text, given in texts:
        drafts, _ = draft_head.drafts_along(model, head, text, DEPTHS)
        for k, total in totals.items():
            totals[k] = [a + b for a, b in zip(total, draft_head.steps_of(drafts, text, given, k))]
    return {
        str(k): {"steps": steps, "tokens_a_step": round(1 + accepted / steps, 4), "accepted": round(accepted / proposed, 4)}
        for k, (steps, proposed, accepted) in totals.items()
    }


def continued(model, prompt, steps):
    return prompt + hf.greedy(model, prompt, steps)[0], len(prompt)


def drawn(model, prompt, steps, seed):
    """Like continued(), but each token is drawn."""
    random, ids, cache, feed = torch.Generator().manual_seed(seed), [], None, prompt
    for _ in range(steps):
        logits, cache = hf.forward(model, feed, cache)
        ids.append(int(torch.multinomial(torch.softmax(logits[-1] / TEMPERATURE, dim=-1), 1, generator=random)))
        feed = ids[-1:]
    return prompt + ids, len(prompt)


def measured(model, head, held_out, chats):
    """How many drafts hold: in the model's own words behind starts of held-out text and in chats, and in the held-out text itself."""
    starts = [held_out[at:at + START] for at in range(0, len(held_out) - START, len(held_out) // CONTINUED)][:CONTINUED]
    windows = [held_out[at:at + trained_goldens.WINDOW] for at in range(0, len(held_out), trained_goldens.WINDOW)]
    return {
        "continued": acceptance(model, head, [continued(model, ids, STEPS) for ids in starts]),
        "drawn": acceptance(model, head, [drawn(model, ids, STEPS, seed) for seed, ids in enumerate(starts)]),
        "chats": acceptance(model, head, [continued(model, ids, STEPS) for ids in chats]),
        "heldout": acceptance(model, head, [(ids, 0) for ids in windows]),
    }


def golden(directory, text_directory):
    """(tensors, manifest entry). text_directory: where heldout.txt is."""
    tensors, entry = trained_goldens.golden(directory, text_directory, PROMPTS)
    model = trained_goldens.load(directory)
    head = load_head(directory, model)
    tok = Tokenizer.from_file(str(directory / "tokenizer.json"))
    prompts = [tok.encode(text, add_special_tokens=False).ids for text in PROMPTS]
    for i, prompt in enumerate(prompts):
        rows = tensors[f"p{i}.positions"]
        ids = torch.tensor([prompt])
        with torch.no_grad():
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
            logits = draft_head.draft_logits(model, head, ids, hidden, 1)[0][0]
        drafts, margins = proposals(model, head, prompt + tensors[f"p{i}.greedy.ids"].tolist(), len(prompt))
        tensors[f"p{i}.draft.logits"] = logits[rows].numpy()
        tensors[f"p{i}.draft.ids"], tensors[f"p{i}.draft.margin"] = hf.as_i32(drafts.numpy()), margins.numpy()
    entry["drafts"] = measured(model, head, tensors["heldout.ids"].tolist(), [prompts[2], prompts[3]])
    return tensors, entry
