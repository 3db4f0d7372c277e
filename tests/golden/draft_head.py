"""The layer that drafts (MTP) of a hybrid Qwen3.5, which transformers leaves out: its forward pass, and how many drafts hold.

The entry at position t belongs to (hidden row of t - 1 after the model's last norm, token of t); position 0 has a hidden row of zeros.
Row t of depth 1 proposes the token of t + 1. Row t of depth d takes depth d - 1's own normed row of t - 1 for the model's.
"""
import copy

import torch
from torch import nn
from torch.nn import functional
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen


def before(x, rows, dim):
    """x moved `rows` positions on; zeros take the first places."""
    if rows == 0:
        return x
    zeros = torch.zeros_like(x.narrow(dim, 0, rows))
    return torch.cat([zeros, x.narrow(dim, 0, x.shape[dim] - rows)], dim=dim)


class DraftHead(nn.Module):
    """Parameters are named as checkpoints name them behind `mtp.`."""

    def __init__(self, config):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        layer = copy.deepcopy(config)
        layer.layer_types, layer.num_hidden_layers = ["full_attention"], 1
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.pre_fc_norm_embedding = qwen.Qwen3_5RMSNorm(width, eps)
        self.pre_fc_norm_hidden = qwen.Qwen3_5RMSNorm(width, eps)
        self.layers = nn.ModuleList([qwen.Qwen3_5DecoderLayer(layer, 0)])
        self.norm = qwen.Qwen3_5RMSNorm(width, eps)
        for matrix in (p for p in self.parameters() if p.ndim == 2):
            nn.init.normal_(matrix, std=config.initializer_range)

    def attend(self, x, rope, keys, values):
        """Gated attention of this depth's rows. Appends to keys and values, which have a tensor [B, heads, T, head_dim] a depth."""
        attention = self.layers[0].self_attn
        heads = (*x.shape[:-1], -1, attention.head_dim)
        q, gate = attention.q_proj(x).view(*x.shape[:-1], -1, 2 * attention.head_dim).chunk(2, dim=-1)
        q = attention.q_norm(q).transpose(1, 2)
        k = attention.k_norm(attention.k_proj(x).view(heads)).transpose(1, 2)
        v = attention.v_proj(x).view(heads).transpose(1, 2)
        q, k = qwen.apply_rotary_pos_emb(q, k, *rope)
        keys.append(qwen.repeat_kv(k, attention.num_key_value_groups))
        values.append(qwen.repeat_kv(v, attention.num_key_value_groups))
        depth, length = len(keys) - 1, x.shape[1]
        # What a row sees: entries of the text up to where drafting began, then one of each depth, which drafting made.
        late = torch.ones(length, length, dtype=torch.bool).triu(1 - depth)
        scores = [(q @ keys[0].transpose(-1, -2)).masked_fill(late, float("-inf"))]
        drafted = range(1, depth + 1)
        scores += [(q * before(keys[i], depth - i, 2)).sum(-1, keepdim=True) for i in drafted]
        p = torch.softmax(torch.cat(scores, dim=-1) * attention.scaling, dim=-1)
        out = p[..., :length] @ values[0]
        for i in drafted:
            out = out + p[..., length + i - 1, None] * before(values[i], depth - i, 2)
        out = out.transpose(1, 2).reshape(*x.shape[:-1], -1)
        return attention.o_proj(out * torch.sigmoid(gate.reshape(out.shape)))

    def forward(self, embedding, hidden, rope, depths):
        """Normed rows [B, T, hidden] of each depth, of the embeddings and the model's normed hidden rows of a whole text."""
        layer, keys, values, outs = self.layers[0], [], [], []
        embedding = self.pre_fc_norm_embedding(embedding)
        for _ in range(depths):
            x = self.fc(torch.cat([embedding, self.pre_fc_norm_hidden(before(hidden, 1, 1))], dim=-1))
            x = x + self.attend(layer.input_layernorm(x), rope, keys, values)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            hidden = self.norm(x)
            outs.append(hidden)
        return outs


def rope_of(model, hidden):
    """cos and sin of positions 0, 1, ... as the model's own layers take them."""
    positions = torch.arange(hidden.shape[1]).expand(3, hidden.shape[0], -1)
    return model.model.rotary_emb(hidden, positions)


def draft_logits(model, head, ids, hidden, depths):
    """Logits [B, T, V] of each depth; of depth d rows from d - 1 on mean something. ids [B, T], hidden [B, T, hidden]."""
    embedding = model.model.embed_tokens(ids).detach()
    table = model.lm_head.weight.detach()
    return [functional.linear(out, table) for out in head(embedding, hidden, rope_of(model, hidden), depths)]


def draft_loss(model, head, ids, hidden, logits, depths):
    """Mean cross-entropy of every depth against what the model itself says in the same place."""
    teacher = torch.softmax(logits.detach(), dim=-1)
    losses = []
    for depth, drafted in enumerate(draft_logits(model, head, ids, hidden.detach(), depths)):
        log_p = torch.log_softmax(drafted[:, depth:], dim=-1)
        losses.append(-(teacher[:, depth:] * log_p).sum(-1).mean())
    return torch.stack(losses)


@torch.no_grad()
def drafts_along(model, head, ids, depths):
    """Of a text [T]: (draft d + 1 of a step whose last token is at row t, its margin), each [T, depths], as long as those before it hold.

    Rows whose later drafts would begin behind the text's end have -1 there.
    """
    ids = torch.as_tensor(ids)[None]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    drafts = torch.full((ids.shape[1], depths), -1, dtype=torch.long)
    margins = torch.zeros(ids.shape[1], depths)
    for depth, logits in enumerate(draft_logits(model, head, ids, hidden, depths)):
        rows = logits[0, depth:]
        top = torch.topk(rows, 2, dim=-1).values
        drafts[: len(rows), depth] = rows.argmax(-1)
        margins[: len(rows), depth] = top[:, 0] - top[:, 1]
    return drafts, margins


def steps_of(drafts, text, first, count):
    """(steps, drafts proposed, drafts accepted): greedy decoding of text[first + 1 ...] with `count` drafts a step."""
    at, steps, accepted = first, 0, 0
    while at + count + 1 < len(text):
        kept = 0
        while kept < count and int(drafts[at, kept]) == text[at + 1 + kept]:
            kept += 1
        at, steps, accepted = at + kept + 1, steps + 1, accepted + kept
    return steps, steps * count, accepted
