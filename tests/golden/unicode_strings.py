"""Hard strings for the tokenizer goldens.

Only code points that Unicode 14 has, or that no Unicode has, so that the answer does not depend on the age of a table.
"""
import random
import unicodedata

MULTILINGUAL = [
    "The quick brown fox jumps over the lazy dog.", "It's what we'd've said; they're here, I'll go, you've won, I'm done.",
    "Le cœur a ses raisons que l'été ne connaît pas.", "Größe, Straße, Äpfel und Öl über Übermut.", "¿Dónde está el niño? ¡Mañana!",
    "Ελληνική γλώσσα και ἀρχαία ᾠδή", "Съешь же ещё этих мягких французских булок", "Київ і їжак ґанок", "שָׁלוֹם עוֹלָם", "מה שלומך היום?",
    "مَرْحَبًا بِالعَالَم", "كيف حالك اليوم؟ ١٢٣", "नमस्ते दुनिया, आप कैसे हैं?", "क्षत्रिय ज्ञान श्री १२३", "বাংলা ভাষা সুন্দর", "தமிழ் மொழி இனிது",
    "తెలుగు భాష", "ಕನ್ನಡ ನುಡಿ", "മലയാളം ഭാഷ", "සිංහල භාෂාව", "สวัสดีครับ ผมชื่อสมชาย", "ภาษาไทยน้ำใจเก้าอี้", "ພາສາລາວ", "မြန်မာဘာသာ", "ភាសាខ្មែរ",
    "བོད་སྐད", "日本語のテスト、カタカナとひらがな。", "漢字と假名が混じる文章", "今天天气很好，我们去公园。", "한국어 문장을 시험합니다", "각 값 힣", "Tiếng Việt rất đẹp và khó đọc",
    "Türkçe İstanbul ılık ığdır", "Íslenska þjóð ætíð", "አማርኛ ቋንቋ", "ქართული ენა", "Հայերեն լեզու", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "Монгол ᠮᠣᠩᠭᠣᠯ",
]
EMOJI = [
    "😀", "😀😀😀", "👍🏽", "👨‍👩‍👧‍👦", "👩🏻‍💻", "🏳️‍🌈", "🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "🇩", "1️⃣2️⃣#️⃣", "❤️", "❤", "❤️‍🔥", "☺️ ok", "🤷🏾‍♀️ what?", "👁️‍🗨️", "a😀b", "😀 😀", "🧑‍🚀's", "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "\u200d", "\ufe0f", "👨\u200d", "🏽",
]
SPACES = "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
NOT_QUITE_SPACES = "\u180e\u200b\u200c\u200d\u2060\ufeff\xad"
DIGITS = [
    "0123456789", "3.14159", "1,000,000", "2024-02-29T23:59", "٠١٢٣٤٥", "۰۱۲۳", "०१२३४", "๐๑๒๓", "０１２３", "𝟎𝟏𝟐", "𝟘𝟙", "½¾⅓", "²³¹", "①②③", "Ⅳ Ⅷ ⅻ", "〇一二三", "〡〢〣", "፩፪፫",
    "𐄇𐄈", "x1y2z3", "a1b", "1a1", "№5", "100%", "1st2nd", "12٣٤५६", "𝟏a", "੧੨", "༠༡༳", "৳১০০", "㉈㉉", "🄁🄂",
]
CONTRACTIONS = [
    "it's", "IT'S", "It'S", "don't DON'T Don'T", "we're WE'RE we'Re", "I've I'VE", "I'm I'M", "we'll WE'LL we'lL", "he'd HE'D", "'s", "'S", "'t't't", "'re've", "'sx", "x'sx",
    "'", "''", "'''s", "' s", "it' s", "it’s", "don’t I’ll", "it'\u017f", "IT'\u017f", "\u017f", "'\u017fx", "'\u212a", "l'été", "rock'n'roll", "o'clock", "'d've", "y'all'd've", "'ſt 'rE 'vE 'LL",
    "'s'", "\"it's\"", "('s)", "1's", "é's", "日's", " 's", "\n's", "'em", "'r", "'v", "'l", "'ll", "'lll",
]
WORDS = [
    "", " ", "a", "A", " a", "a ", "  a", "   a", "a  b", "a   b", "a\tb", "a \tb", "\t\tdef f():\n\t\treturn 1\n", "    indented\n        more", "trailing   ", "trailing\n", "x\n\ny", "x\n \ny", "x \n y",
    "x \n\n  y", "\n", "\n\n", "\n\n\n", "\n \n", " \n", "\n ", "  \n  ", "\r\n", "a\r\nb", "a\r\n\r\nb", "a\rb", "\r\r\n\n", "a \r\n b", "a\n\r b", "!\n", "!\r\n\n", "!!! \n", "a!\nb", " !\n\n!", "...", "... ...", "…", "--->",
    "foo.bar(baz)[0] += \"qux\";", "https://example.org/a?b=c&d=%20#e", "user@example.org", "snake_case_name __init__", "CamelCaseHTTPServer", "a-b-c", "$100 €20 £3 ¥5", "#include <stdio.h>\n", "{\"k\": [1, 2.5e-3, null]}",
    "<p class=\"x\">text</p>", "a*b**c", "\\n is not \n", "~!@#$%^&*()_+`-={}|[]\\:\";'<>?,./", "¡¿«»‹›„“”‘’", "—–‒―", "×÷±≠≤∞∑√∫", "∀x∈ℝ: x²≥0", "αβγ∂", "→⇒↔", "♠♥♦♣", "™©®", "°C µm Ω K Å",
    "\x00", "a\x00b", "\x01\x02\x7f", "\x1b[31mred\x1b[0m", "\x80\x9f", "a\xa0b", "\xa0\xa0a", "a\xa0 b", "a \xa0b", "\u3000日本", "日本\u3000語", "a\u2028b\u2029c", "a\u200bb", "\ufeffbom", "a\u00adb", "\u202eabc\u202c", "a\u2060b",
]
NORMALISE = [
    "é", "e\u0301", "e\u0301e\u0301", "\u0301", "\u0301e", " \u0301", "a\u0301\u0301", "a\u0323\u0307", "a\u0307\u0323", "\u1e69", "s\u0323\u0307", "s\u0307\u0323", "\u1e9b\u0323", "\u212b", "A\u030a", "\u00c5", "\u2126", "\u212a",
    "\u2000\u2001", "\u037e", "\u0387", "\u1fef", "\u2329x\u232a", "\ufb01", "\ufb1d", "\ufb2a", "\u0958", "\u0915\u093c", "\u09dc", "\u0a33", "\u0f43", "\u0f73", "\u0344", "\u0374", "\u0341", "\u0343", "\u1100\u1161", "\u1100\u1161\u11a8",
    "\uac00\u11a8", "\uac01", "\uac01\u11a8", "\u1112\u1175\u11c2", "\u1100", "\u1161", "\u11a8", "\u1100\u1100\u1161", "\u115f\u1161", "\ua960\ud7b0", "\u3131\u314f", "\uff76\uff9e", "か\u3099", "\u3099", "ハ\u309a", "\u304b\u3099\u3099",
    "\uf900", "\uf9ff", "\ufa0e", "\U0002f800", "\U0002fa1d", "\U0001d15e", "\U0001d1bb", "\U00011099\U000110ba", "\U0001109a", "\U00011131\U00011127", "\u0f71\u0f72\u0f74", "\u0327\u0301c", "c\u0301\u0327", "c\u0327\u0301",
    "Vie\u0323\u0302t", "Việt", "n\u0303o", "u\u0308\u0304", "\u01d6", "\u0fb2\u0f81", "\u0bc6\u0bbe", "\u0dd9\u0dcf\u0dca", "\u1b05\u1b35", "q\u0307\u0323", "\u0340\u0341", "=\u0338", "\u2260", "<\u0338", "a\u0338",
    "a\u034fb\u0301", "a\u0315\u0300\u05ae\u0062", "\u05d0\u05b7\u05bc", "\u05d0\u05bc\u05b7", "\u0644\u0627\u0653", "\u0622", "\u06c1\u0654", "\u0928\u093c", "\u1025\u102e",
]
MARKS = [
    "กำ", "ก\u0e49ำ", "น้ำ", "เก้าอี้", "ที่นี่", "\u0e31", "\u0e49\u0e49", " \u0e34", "ก \u0e34ก", "क्", "क्ष", "क्\u200dष", "क्\u200cष", "कि", "ि", "िक", "की।", "श्री श्री", "நி", "கௌ", "ம்ம்", "ക്ക", "ക്\u200d", "ශ්\u200dරී",
    "বাংলা", "ক্ষ", "ང་ཚོ", "မြန်", "ខ្ញុំ", "שָׁ", "בְּרֵאשִׁית", "\u05b0", "مُحَمَّد", "ـــ", "لا إله", "ﷲ ﷺ", "\u064b", "a\u20dd", "x\u0336y\u0336z", "Z\u0351\u036b\u0343a\u0324l\u030dg\u0321o\u0317", "\u0300\u0301\u0302", "1\u0301", "!\u0301", " \u0301a", "\n\u0301",
    "_\u0302_", "a\u0488", "\u0903\u0903", "\u20e3", "1\u20e3", "\u1dc0x", "ᠮᠣᠩ\u180bᠭᠣᠯ", "\U000e0100", "葛\U000e0100城", "\ufe0ex", "が", "か゛", "ｶﾞ", "\u302a", "\u3030", "𝒜𝓑𝔠", "ⓐⓑ", "ªº", "ʰʷ", "ǅ ǈ", "ﬀ", "ŉ", "ǰ", "İ i̇", "ß ẞ", "ΐ ΰ", "σς Σ",
]
# Never assigned, or not characters: U+0378, U+0379, unused rows, non-characters, private use, tags.
ODD = [
    "\u0378", "\u0379a", "a\u0378b", "\u0378\u0301", " \u0378", "\ufdd0", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff", "\U000fffff", "\ue000", "a\ue000b", "\uf8ff logo", "\U000f0000", "\U000e0001\U000e0020", "\ufff9x\ufffa", "\ufffd", "\ufffd\ufffd!",
    "\ufffc", "\U00013000\U00013001", "\U0001d7d8\U0001d7d9", "\U00020000\U0002a6d6", "\U0001f1e6\U0001f1ff", "\u2ff0\u2ff1", "\U00010000", "\u07ff\u0800", "\ud7fb\ue000",
]


def added_token_strings(tokens):
    """The added tokens alone, beside each other, cut short, inside words, beside every kind of space."""
    out = []
    for t in tokens:
        out += [t, t + t, "a" + t + "b", " " + t + " ", t + "\n", "\n" + t, t[:-1], t[1:], t[:-1] + t, t + t[1:], t.upper()]
    a, b = tokens[0], tokens[1]
    out += [
        a + b, b + a, a + " " + b, f"{a}user\nHi{b}\n", f"it{a}'s", f"e{a}\u0301", f"e\u0301{a}e\u0301", f"  {a}  ", f"1{a}2", f"{a}\u0301", f"\u1100{a}\u1161", f"x\u200d{a}", a[:3] + a + a[3:], "<|" + a + "|>",
        "<think>\nreason\n</think>\n\nanswer", "<think></think>", "<think><think>", "</think", "<|unknown|>", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
    ]
    return out


def long_runs():
    return [
        "a" * 300, " " * 200, " " * 33 + "x", "\n" * 100, "\n " * 40, "\t" * 50 + "x", "!" * 129, "1" * 120, "é" * 80, "e\u0301" * 80, "a" + "\u0301" * 60, "😀" * 40, "👨\u200d👩\u200d👧" * 15, "日" * 90, "ก้" * 60, "ab" * 150, "aB1!" * 50, "a " * 100,
        "'s" * 60, "\r\n" * 50, "\u3000" * 40, "\u1100\u1161" * 40, "<think>" * 20, "<|im_end" * 12, ".\n" * 40,
    ]


def whitespace_mixes():
    out = [f"a{s}b" for s in SPACES + NOT_QUITE_SPACES] + [f"a {s}b" for s in "\t\v\x1f\x85\xa0\u2003\u2028\u3000"]
    out += [f"a{s}{s}b" for s in "\v\x1c\x85\xa0\u2009\u2029\u3000\u180e\u200b"] + [f"a{s}\n{s}b" for s in " \t\xa0\u3000\r"]
    return out


def random_strings(count=60):
    """Mixtures of everything above, letter by letter."""
    r = random.Random(11)
    letters = list("abcXYZ012 .,!'\n\r\t\xa0\u3000éßñ") + ["\u0301", "\u0323", "\u093f", "\u0e34", "\u064e", "\u200d", "\ufe0f", "क", "ก", "م", "ש", "日", "한", "\u1100", "\u1161", "\u11a8", "😀", "１", "٣", "\u0378", "'s", "'LL", "<|im_end|>", "<think>", "  "]
    return ["".join(r.choice(letters) for _ in range(r.randrange(2, 40))) for _ in range(count)]


def safe(text):
    """Assigned in Unicode 14 (what this Python knows), or one of the code points that stay unassigned."""
    for c in text:
        category = unicodedata.category(c)
        assert category != "Cs", "surrogates are not valid UTF-8"
        if category == "Cn":
            assert c in "\u0378\u0379\ufdd0\ufffe\uffff\U0001fffe\U0010ffff\U000fffff\U000e0020", hex(ord(c))
    return True


def all_strings(added):
    assert unicodedata.unidata_version.startswith("14."), "pick strings with a Python that has Unicode 14 tables"
    groups = [WORDS, MULTILINGUAL, EMOJI, DIGITS, CONTRACTIONS, NORMALISE, MARKS, ODD, added_token_strings(added), whitespace_mixes(), long_runs(), random_strings()]
    return [s for s in dict.fromkeys(s for g in groups for s in g) if safe(s)]
