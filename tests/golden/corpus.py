"""The training text: the King James Version, as Debian's bible-kjv packages print it. Its copyright has long expired.

apt-get install bible-kjv bible-kjv-text
"""
import random
import re
import subprocess

BOOKS = {
    "Ge": "Genesis", "Exo": "Exodus", "Lev": "Leviticus", "Num": "Numbers", "Deu": "Deuteronomy", "Josh": "Joshua",
    "Jdgs": "Judges", "Ruth": "Ruth", "1Sm": "1 Samuel", "2Sm": "2 Samuel", "1Ki": "1 Kings", "2Ki": "2 Kings",
    "1Chr": "1 Chronicles", "2Chr": "2 Chronicles", "Ezra": "Ezra", "Neh": "Nehemiah", "Est": "Esther", "Job": "Job",
    "Psa": "Psalm", "Prv": "Proverbs", "Eccl": "Ecclesiastes", "SSol": "Song of Solomon", "Isa": "Isaiah", "Jer": "Jeremiah",
    "Lam": "Lamentations", "Eze": "Ezekiel", "Dan": "Daniel", "Hos": "Hosea", "Joel": "Joel", "Amos": "Amos", "Obad": "Obadiah",
    "Jonah": "Jonah", "Mic": "Micah", "Nahum": "Nahum", "Hab": "Habakkuk", "Zep": "Zephaniah", "Hag": "Haggai",
    "Zec": "Zechariah", "Mal": "Malachi", "Mat": "Matthew", "Mark": "Mark", "Luke": "Luke", "John": "John", "Acts": "Acts",
    "Rom": "Romans", "1Cor": "1 Corinthians", "2Cor": "2 Corinthians", "Gal": "Galatians", "Eph": "Ephesians",
    "Phi": "Philippians", "Col": "Colossians", "1Th": "1 Thessalonians", "2Th": "2 Thessalonians", "1Tim": "1 Timothy",
    "2Tim": "2 Timothy", "Titus": "Titus", "Phmn": "Philemon", "Heb": "Hebrews", "Jas": "James", "1Pet": "1 Peter",
    "2Pet": "2 Peter", "1Jn": "1 John", "2Jn": "2 John", "3Jn": "3 John", "Jude": "Jude", "Rev": "Revelation",
}
# Whole books of three styles; the model never sees a word of them.
HELD_OUT = {"Ruth", "Jonah", "James"}
END = "<|endoftext|>"


def read_chapters():
    """[(book, chapter number, [verse, ...]), ...] in the order of the text."""
    text = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True, capture_output=True, text=True).stdout
    chapters = []
    for line in text.splitlines():
        book, chapter, verse = re.fullmatch(r"(\d?[A-Za-z]+)(\d+):\d+ (.*)", line).groups()
        key = (BOOKS[book], int(chapter))
        if not chapters or chapters[-1][:2] != key:
            chapters.append((*key, []))
        chapters[-1][2].append(verse.strip())
    return chapters


def prose(book, number, verses):
    """A chapter as plain prose: a title, then paragraphs of four verses."""
    paragraphs = [" ".join(verses[i:i + 4]) for i in range(0, len(verses), 4)]
    return f"{book} {number}\n\n" + "\n\n".join(paragraphs) + END


def turn(role, content):
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


SYSTEM = ["You are a helpful assistant.", "You read from the Bible.", "Answer with a verse."]


def chat(rng, book, number, verses):
    """A small ChatML conversation about a chapter; about half of the answers think first."""
    parts = [turn("system", rng.choice(SYSTEM))] if rng.random() < 0.4 else []
    for _ in range(rng.choice([1, 1, 2, 3])):
        i = rng.randrange(len(verses))
        kind = rng.random()
        if kind < 0.5:
            question = rng.choice([
                f"Read me a verse from {book}.", f"What is written in {book} {number}?", f"Tell me something from {book} {number}.",
                f"Please read {book} {number}:{i + 1}.",
            ])
            answer, thought = verses[i], f"The user wants a verse from {book}. I will read it."
        elif kind < 0.8 and i + 1 < len(verses):
            question = f"{rng.choice(['What comes after this', 'Continue', 'Go on'])}: {verses[i]}"
            answer, thought = verses[i + 1], f"This is from {book}. The next verse follows."
        else:
            question = f"Which book is this from? {verses[i]}"
            answer, thought = f"This is from the book of {book}.", f"These words are in {book} {number}."
        body = f"<think>\n{thought}\n</think>\n\n{answer}" if rng.random() < 0.5 else f"<think>\n\n</think>\n\n{answer}"
        parts += [turn("user", question), turn("assistant", body)]
    return "".join(parts) + END


def documents(seed=7, chats_per_chapter=2):
    """(training documents, held-out text)."""
    rng = random.Random(seed)
    train, held_out = [], []
    for book, number, verses in read_chapters():
        if book in HELD_OUT:
            held_out.append(prose(book, number, verses))
            continue
        train.append(prose(book, number, verses))
        train += [chat(rng, book, number, verses) for _ in range(chats_per_chapter)]
    return train, "".join(held_out)
