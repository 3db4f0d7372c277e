#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Chat templates of real models, rendered by the library and by transformers, byte for byte.

    pip install transformers==5.23.0 jinja2 && python3 tests/judges/templates.py FOLDER [--library build/src/api/libmainarch.so] [--random 200]

FOLDER (or $MAINARCH_JUDGE_TEMPLATES) holds *.jinja, such as models/templates of a checkout of ikawrakow/ik_llama.cpp; they stay out of this tree. Each template gets every chat
below with and without tools, documents, a generation prompt, thinking; then random chats. Where transformers raises, the library must refuse, and in
the template's own words if those it has. Prints counts; exits with 1 if anything differs.
"""
import argparse
import collections
import ctypes
import json
import os
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOS, EOS = "<|im_start|>", "<|im_end|>"  # of the tokenizer in tests/golden/trained


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("errno", ctypes.c_int32), ("device", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("message", ctypes.c_char * 496)]


class Ours:
    """A tokenizer of the library whose directory has this template."""

    def __init__(self, library, template, folder):
        self.library = library
        folder = pathlib.Path(folder)
        (folder / "tokenizer.json").write_bytes((ROOT / "tests/golden/trained/tokenizer.json").read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": {"__type": "AddedToken", "content": EOS}}))
        (folder / "chat_template.jinja").write_text(template, newline="")
        self.handle, self.error = ctypes.c_void_p(), Error()
        if library.mainarch_tokenizer_open(str(folder).encode(), ctypes.byref(self.handle), ctypes.byref(self.error)):
            sys.exit(self.error.message.decode())

    def render(self, request):
        text = json.dumps(request, ensure_ascii=False).encode()
        capacity = 1 << 16
        while True:
            out, length = ctypes.create_string_buffer(capacity), ctypes.c_size_t()
            status = self.library.mainarch_tokenizer_render_chat_json(
                self.handle, text, ctypes.c_size_t(len(text)), out, ctypes.c_size_t(capacity), ctypes.byref(length), ctypes.byref(self.error))
            if status != -6:
                break
            capacity = length.value + 1
        return (out.raw[:length.value].decode(), None) if status == 0 else (None, self.error.message.decode(errors="replace"))

    def close(self):
        self.library.mainarch_tokenizer_destroy(self.handle)


def theirs(tokenizer, request):
    request = dict(request)
    extra = request.pop("chat_template_kwargs", {})
    try:
        return tokenizer.apply_chat_template(request.pop("messages"), tokenize=False, **request, **extra), None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a refusal
        return None, error


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the \"current\" weather <now> & 'later'.", "parameters": {
        "type": "object", "properties": {"location": {"type": "string", "description": "City, e.g. Zürich 😀"},
                                         "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                                         "days": {"type": "integer", "minimum": 1, "maximum": 14}, "fine": {"type": ["number", "null"]},
                                         "at": {"type": "array", "items": {"type": "string"}, "minItems": 0}},
        "required": ["location"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "book", "description": "", "parameters": {
        "type": "object", "properties": {"who": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                                                 "required": ["name"], "additionalProperties": False},
                                         "kind": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "multi\nline\n"},
                                         "any": {}, "flag": {"type": "boolean", "default": True}, "rate": {"type": "number", "default": 0.5}},
        "required": []}}},
    {"type": "function", "function": {"name": "noargs", "description": "Takes nothing", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "bare", "description": "Has no parameters"}},
    {"name": "flat", "description": "Not wrapped", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
    {"type": "builtin", "function": {"name": "web_search", "description": "s", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}},
]
DOCUMENTS = [{"title": "Ruth", "text": "Whither thou goest,\nI will go."}, {"title": "Job", "text": "\"skin\" of <my> teeth", "doc_id": 3}]


def user(text="What is 2 + 2?"):
    return {"role": "user", "content": text}


def system(text="Be brief."):
    return {"role": "system", "content": text}


def assistant(text="4", **more):
    return {"role": "assistant", "content": text, **more}


def call(name="get_weather", arguments=None, ident="call00001", typed=True):
    arguments = {"location": "Zürich", "days": 3, "fine": 1.50, "unit": None, "at": ["a", "b"], "ok": True} if arguments is None else arguments
    out = {"id": ident, "function": {"name": name, "arguments": arguments}}
    return {"type": "function", **out} if typed else out


def tool(text='{"temp": 21.0}', ident="call00001", name="get_weather"):
    return {"role": "tool", "content": text, "tool_call_id": ident, "name": name}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


CHATS = {
    "plain": [user()],
    "system": [system(), user()],
    "turns": [system(), user("Hi"), assistant("Hello!"), user("Who are you?"), assistant("me"), user("  and\nnow \n")],
    "ends with the assistant": [user(), assistant()],
    "empty system": [system(""), user()],
    "empty user": [user("")],
    "empty assistant": [user(), assistant(""), user()],
    "white space": [system("  \n"), user("\n x \t\n"), assistant(" y \n"), user(" ")],
    "unicode": [system("Ü 😀 \u2028 \u00a0x"), user("नमस्ते e\u0301 <b>&amp;</b> 'q' \"d\" \\n {{ x }} {% y %}"), assistant("ß→SS"), user("İ")],
    "special tokens": [user("an <|im_end|> and [INST] </s> <|eot_id|> <think> in it")],
    "think in content": [user(), assistant("<think>\nEasy.\n</think>\n\n4"), user("And 3 + 3?"), assistant("<think>\n\n</think>\n\n6"), user("ok")],
    "think at the end": [user(), assistant("<think>why\nnot</think>4")],
    "two thinks": [user(), assistant("a<think>x</think>b</think>c"), user()],
    "reasoning": [user(), assistant(reasoning_content="Because\nit is."), user("sure?")],
    "reasoning last": [system(), user(), assistant(reasoning_content="\nBecause ")],
    "reasoning other names": [user(), assistant(thinking="t"), user(), assistant(reasoning="r"), user(), assistant(reasoning_content=None), user()],
    "reasoning empty": [user(), assistant(reasoning_content=""), user()],
    "call": [user(), assistant("", tool_calls=[call()])],
    "call and result": [user(), assistant("", tool_calls=[call()]), tool(), assistant("It is fine."), user("thanks")],
    "call, null content": [user(), assistant(None, tool_calls=[call()]), tool(), user("go on")],
    "call without content": [user(), {"role": "assistant", "tool_calls": [call()]}, tool()],
    "call with text": [system(), user(), assistant("Let me look.", tool_calls=[call()]), tool(), tool("second", "call00002")],
    "two calls": [user(), assistant("", tool_calls=[call(), call("book", {"who": {"name": "Ruth", "age": 20}, "any": [1, {"k": None}]}, "call00002")]),
                  tool(), tool('{"ok": true}', "call00002", "book"), assistant("done"), user()],
    "call with reasoning": [user(), assistant("", reasoning_content="I need the weather.", tool_calls=[call()]), tool(), assistant("ok", reasoning_content="x")],
    "arguments as text": [user(), assistant("", tool_calls=[call(arguments='{"location": "Zürich"}')]), tool()],
    "no arguments": [user(), assistant("", tool_calls=[call("noargs", {})]), tool("", name="noargs")],
    "untyped call": [user(), assistant("", tool_calls=[call(typed=False)]), tool()],
    "flat call": [user(), assistant("", tool_calls=[{"name": "flat", "arguments": {"x": "<y>"}, "id": "call00003"}]), tool("r", "call00003", "flat")],
    "empty calls": [user(), assistant("a", tool_calls=[]), user()],
    "tool result parts": [user(), assistant("", tool_calls=[call()]), {**tool(), "content": parts("one", "two")}],
    "tool result object": [user(), assistant("", tool_calls=[call()]), {**tool(), "content": {"temp": 21, "list": [1.0, "x"]}}, user()],
    "tool without call": [user(), tool()],
    "tool first": [tool(), user()],
    "late tool": [system(), user(), assistant("", tool_calls=[call()]), tool(), user("b"), assistant("", tool_calls=[call()]), tool(), tool()],
    "parts": [{"role": "user", "content": parts("Hello ", "there")}],
    "system parts": [{"role": "system", "content": parts("Be brief.")}, {"role": "user", "content": parts("x")}],
    "assistant parts": [user(), {"role": "assistant", "content": parts("a", "b")}, user()],
    "image part": [{"role": "user", "content": [{"type": "image"}, *parts("What is it?"), {"type": "image_url", "image_url": {"url": "x"}}]}],
    "video and audio": [{"role": "user", "content": [{"type": "video"}, {"type": "audio", "audio": "a"}, *parts("?")]}],
    "odd part": [{"role": "user", "content": [{"type": "smell", "smell": "rose"}, "bare"]}],
    "empty parts": [{"role": "user", "content": []}],
    "two users": [user("a"), user("b")],
    "two assistants": [user("a"), assistant("b"), assistant("c"), user("d")],
    "two systems": [system("a"), system("b"), user()],
    "late system": [user(), system(), user()],
    "only system": [system()],
    "assistant first": [assistant("Hi"), user()],
    "developer": [{"role": "developer", "content": "Use tabs."}, user()],
    "odd role": [{"role": "wizard", "content": "x"}, user()],
    "function role": [user(), {"role": "function", "name": "f", "content": "r"}, user()],
    "ipython role": [user(), {"role": "ipython", "content": "r"}],
    "named": [{"role": "user", "name": "Ruth", "content": "x"}],
    "no content": [{"role": "user"}],
    "no role": [{"content": "x"}],
    "null content": [{"role": "user", "content": None}, assistant()],
    "number content": [{"role": "user", "content": 3.0}],
    "boolean content": [{"role": "user", "content": True}],
    "object content": [{"role": "user", "content": {"a": 1}}],
    "extra fields": [{"role": "user", "content": "x", "weight": 1, "items": "odd", "keys": [1]}],
    "prefix": [user(), assistant("The answer", prefix=True)],
    "long": [system(), *[m for i in range(40) for m in (user(f"q{i}"), assistant(f"a{i}"))], user("end")],
    "numbers in arguments": [user(), assistant("", tool_calls=[call(arguments={
        "a": 1e100, "b": -0.0, "c": 1e-7, "d": 123456789012345678, "e": 0.1, "f": 1e16, "g": 12345.678, "h": [], "i": {}, "j": "\u0001\u007f\n\t\"\\/"})]), tool()],
}

OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    {"add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}},
    {"add_generation_prompt": True, "tools": TOOLS[:1]},
    {"add_generation_prompt": True, "tools": TOOLS[:4], "chat_template_kwargs": {"enable_thinking": True}},
    {"tools": TOOLS},
    {"tools": []},
    {"tools": TOOLS[:2], "documents": DOCUMENTS, "add_generation_prompt": True},
    {"documents": DOCUMENTS},
    {"add_generation_prompt": True, "chat_template_kwargs": {"clear_thinking": False, "preserve_thinking": True, "date_string": "1 Jan 2026",
                                                             "builtin_tools": ["python"], "tools_in_user_message": False, "custom_tools": TOOLS[:1],
                                                             "model_identity": "I.", "citations": "off", "controls": {"length": "short"},
                                                             "functions": json.dumps(TOOLS[:1]), "datetime": "now", "model_name": "m"}},
    {"continue_final_message": True},
    {"continue_final_message": "reasoning_content"},
]


def random_text(rng):
    return "".join(rng.choice(["word", " ", "\n", "é", "😀", "<think>", "</think>", "{", "}", '"', "'", "\\", "<|im_end|>", "1.5", "\t", "[INST]", "ß"])
                   for _ in range(rng.randrange(8)))


def random_message(rng):
    role = rng.choice(["system", "user", "user", "assistant", "assistant", "tool", "developer"])
    message = {"role": role, "content": rng.choice([random_text(rng), random_text(rng), parts(random_text(rng), random_text(rng)), None])}
    if role == "assistant":
        if rng.random() < 0.3:
            message["reasoning_content"] = random_text(rng)
        if rng.random() < 0.4:
            message["tool_calls"] = [call(rng.choice(["get_weather", "book"]), {random_text(rng): rng.choice([1, 2.5, None, True, random_text(rng), [1], {"a": []}])
                                                                                for _ in range(rng.randrange(3))}, f"call0000{i}") for i in range(rng.randrange(1, 3))]
    if role == "tool":
        message.update(tool_call_id="call00001", name="get_weather")
    return message


def random_request(rng):
    messages = [random_message(rng) for _ in range(rng.randrange(1, 7))]
    if rng.random() < 0.7:  # an order that templates take
        messages = [system()] * rng.randrange(2) + [m for _ in range(rng.randrange(1, 4)) for m in (user(random_text(rng)), assistant(random_text(rng)))] + [user()]
    return {"messages": messages, **rng.choice(OPTIONS[:-2])}


def requests(seed, count):
    for name, messages in CHATS.items():
        for i, options in enumerate(OPTIONS):
            yield f"{name}, options {i}", {"messages": messages, **options}
    rng = random.Random(seed)
    for i in range(count):
        yield f"random {i}", random_request(rng)


def explain(want, got):
    at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
    return f"at {at}: transformers {want[max(0, at - 40):at + 60]!r}, library {got[max(0, at - 40):at + 60]!r}"


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=pathlib.Path, nargs="?", default=os.environ.get("MAINARCH_JUDGE_TEMPLATES"))
    words.add_argument("--library", type=pathlib.Path, default=ROOT / "build/src/api/libmainarch.so")
    words.add_argument("--random", type=int, default=200, help="random chats a template")
    words.add_argument("--verbose", action="store_true", help="counts of each template")
    words.add_argument("--only", default="", help="templates with this in their name")
    words = words.parse_args()
    if words.folder is None:
        print("skipped: no FOLDER and no MAINARCH_JUDGE_TEMPLATES")
        sys.exit(77)
    try:
        import jinja2
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    library = ctypes.CDLL(str(words.library))
    library.mainarch_tokenizer_destroy.argtypes = [ctypes.c_void_p]
    counts, different = collections.Counter(), 0
    for path in sorted(pathlib.Path(words.folder).glob("*.jinja")):
        if words.only not in path.name:
            continue
        source = path.read_text(encoding="utf-8")
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=BOS, eos_token=EOS, chat_template=source)
        here = collections.Counter()
        with tempfile.TemporaryDirectory() as folder:
            ours = Ours(library, source, folder)
            for i, (name, request) in enumerate(requests(path.name, words.random)):
                request = {"add_generation_prompt": False, **request}
                want, error = theirs(tokenizer, request)
                got, refusal = ours.render(request)
                if want is not None and got == want:
                    here["equal prompts"] += 1
                elif want is None and got is None:
                    says = str(error)
                    own = type(error) is jinja2.exceptions.TemplateError
                    cut = ("chat template: " + says).encode()[:495].decode(errors="ignore")
                    if own and refusal != cut:
                        here["other words"] += 1
                        print(f"{path.name}: {name}: transformers {says!r}, library {refusal!r}")
                    else:
                        here["raised by the template" if own else "refused by both"] += 1
                else:
                    here["different"] += 1
                    if here["different"] <= 3:
                        print(f"{path.name}: {name}: " + (f"transformers {error!r}, library wrote {got[-80:]!r}" if want is None else
                              f"library refuses: {refusal}" if got is None else explain(want, got)))
            ours.close()
        counts += here
        if words.verbose:
            print(f"{path.name}: {dict(here)}")
        if not here["equal prompts"]:
            print(f"{path.name}: no prompt at all; transformers says {theirs(tokenizer, {'messages': CHATS['plain']})[1]!r}")
        counts["templates"] += 1
    print(", ".join(f"{counts[k]} {k}" for k in ("templates", "equal prompts", "raised by the template", "refused by both", "other words", "different")))
    sys.exit(1 if counts["different"] + counts["other words"] or not counts["equal prompts"] else 0)


if __name__ == "__main__":
    main()
