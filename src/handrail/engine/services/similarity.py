"""Similarity of two tickets: a number from 0 to 1 that depends on the two texts alone.

    words     plain forms: small letters, no endings; words that mean the same are the same word
    weight    a word of the title counts 1, one of the description less; words that every ticket
              has ("problem", "please") count little, those that no ticket is about count nothing
    score     the cosine of the two sets of weighted words

It needs nothing of the other tickets, so that the score of a pair is the same today and tomorrow,
and on every database. A database only finds the candidates, by the same words.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import sqrt

TITLE_CHARS_MAX, TEXT_CHARS_MAX = 500, 4_000
WORDS_MAX, WORD_CHARS_MAX = 64, 40
CACHED_SIGNATURES_MAX = 2_000
"""Signatures whose weights are in memory: most are compared again and again."""
TITLE_SEPARATOR = "/"
"""Separates the words of the title from the others."""
TEXT_WORD_WEIGHT = 0.4
"""Weight of a word that is not in the title."""
COMMON_WORD_WEIGHT = 0.35
"""Weight of a word that many tickets have, whatever they are about."""

_WORD = re.compile(r"[^\W_]+")
_APOSTROPHE = re.compile(r"(?<=\w)['’`](?=\w)")
_ENDINGS = ("ing", "ed", "ly", "er")
_FINAL_S_KEPT = ("ss", "us", "is")

_STOP_WORDS_TEXT = """
    a about after again all also am an and any anymore anyone anything are as at back be because
    been before being but by came can cannot come could did do does doing done during each either
    else ever every everyone everything for from get gets getting give go goes going gone got had
    has have having he hello hence her here hers hey hi him his how however i if im in into is it
    its itself ive just kind let like make many may me might mine more most much must my myself near
    need neither never next no nobody none nor not nothing now of off often on once one only or
    other our ours out over own per please quite rather really regards same say see she should
    simply since so some somebody someone something still such sure tell thank thanks that the their
    theirs them then there these they thing this those though through thus to today together told
    too under until up upon us very via want was we well were what when where whether which while
    who whole whom whose why will with within without would yes yet you your yours
    arent cant couldnt didnt doesnt dont hasnt havent isnt shouldnt wasnt werent wont wouldnt"""
_COMMON_WORDS_TEXT = """
    able access asap bring call check colleague computer correct current customer day
    desk device different error fail find fix hang happen help hour how issue keep laptop long look
    machine message minute month morning new office old open pc people person possible problem
    properly question quick random report right room run second seem send set show some start stop
    suddenly support system team ticket time trouble try turn urgent use user week work wrong
    yesterday"""
_SYNONYMS = {
    "login": ("signin", "logon", "signon"),
    "password": ("passwort", "pwd", "passphrase"),
    "email": ("mail", "mailbox", "inbox"),
    "wifi": ("wlan", "wireless"),
    "drop": ("disconnect", "disconnection", "disconnected"),
    "crash": ("crashes", "quit", "quits", "dies"),
    "freeze": ("frozen", "freezing", "froze", "hangs", "unresponsive"),
    "slow": ("slowly", "sluggish", "lag", "laggy", "crawl"),
    "print": ("printer", "printing", "prints"),
    "mfa": ("2fa", "otp", "authenticator"),
    "virus": ("malware", "trojan", "ransomware"),
    "phish": ("phishing", "scam"),
    "server": ("vm", "instance"),
    "k8s": ("kubernetes", "pod", "pods"),
    "storage": ("bucket", "s3", "blob"),
    "certificate": ("cert", "ssl", "tls"),
    "denied": ("forbidden", "403", "refused", "unauthorized", "unauthorised", "permission"),
    "full": ("exceeded", "quota", "exhausted"),
    "forget": ("forgot", "forgotten", "forgetting"),
    "internet": ("online",),
    "browser": ("chrome", "firefox", "edge", "safari"),
    "expire": ("expired", "expires", "expiry", "outdated"),
    "lock": ("locked", "lockout"),
    "steal": ("stolen", "theft", "lost"),
}
_PHRASES = tuple(
    (re.compile(rf"\b{pattern}\b"), word)
    for pattern, word in {
        r"wi[\s-]?fi": "wifi",
        r"e-mails?": "email",
        r"(?:sign|log)(?:ging|ing|ged|ed)?[\s-](?:me[\s-])?(?:in|on)": "login",
        r"log(?:s|ging|ged) me in": "login",
        r"(?:two|2|multi)[\s-]?(?:factor|step)": "mfa",
        r"blue[\s-]?screens?": "bluescreen",
        r"shuts? (?:itself )?down": "crash",
        r"pass[\s-]words?": "password",
        r"lock(?:s|ed|ing)? (?:me )?out": "lock",
        r"(?:cuts?|drops?|kicks?|throws?) (?:me )?(?:out|off)": "drop",
        r"los(?:es|ing|e|t) (?:the |its |my )?connections?": "drop",
    }.items()
)


def stem(word: str) -> str:
    """Return the word without its ending: drops, dropped and dropping are one word."""
    if len(word) > 4 and word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(_FINAL_S_KEPT):
        word = word[:-1]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            if word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())
_CANONICAL_WORDS = {
    form: stem(word)
    for word, synonyms in _SYNONYMS.items()
    for synonym in synonyms
    for form in (synonym, stem(synonym))
}
_COMMON_WORDS = frozenset(map(stem, _COMMON_WORDS_TEXT.split()))


def words(text: str, chars_max: int = TEXT_CHARS_MAX) -> list[str]:
    """Return the plain forms of a text's words, each once, in order. No character of a text is
    special: words are letters and digits."""
    normalized = unicodedata.normalize("NFKC", text[:chars_max]).casefold()
    normalized = _APOSTROPHE.sub("", normalized)
    for pattern, canonical in _PHRASES:
        normalized = pattern.sub(canonical, normalized)
    kept_words = (
        word[:WORD_CHARS_MAX] for word in _WORD.findall(normalized) if word not in _STOP_WORDS
    )
    return list(dict.fromkeys(_canonical(word) for word in kept_words))[:WORDS_MAX]


def _canonical(word: str) -> str:
    canonical = _CANONICAL_WORDS.get(word)
    if canonical is not None:
        return canonical
    stemmed = stem(word)
    return _CANONICAL_WORDS.get(stemmed, stemmed)


def signature(title: str, text: str = "") -> str:
    """The key by which a ticket is found and weighed: the words of its title, a separator, the
    others. Empty for a ticket without words."""
    title_words = words(title, TITLE_CHARS_MAX)
    text_words = [word for word in words(text) if word not in title_words][
        : WORDS_MAX - len(title_words)
    ]
    if not title_words and not text_words:
        return ""
    return " ".join([*title_words, TITLE_SEPARATOR, *text_words])


def search_words(ticket: str) -> list[str]:
    """The words for the database query: the distinctive ones, if there are any."""
    ticket_words = [word for word in ticket.split() if word != TITLE_SEPARATOR]
    return [word for word in ticket_words if word not in _COMMON_WORDS] or ticket_words


def score(first: str, second: str) -> float:
    """The similarity of two tickets, by their signatures."""
    weights, other_weights = _weights(first), _weights(second)
    common = sum(
        weight * other_weights[word] for word, weight in weights.items() if word in other_weights
    )
    length = sqrt(_sum_of_squares(weights.values()) * _sum_of_squares(other_weights.values()))
    return round(min(1.0, common / length), 4) if length else 0.0


def coverage(first: str, second: str) -> float:
    """The share of the first, by weight, that the second has too; both are signatures."""
    weights, other_weights = _weights(first), _weights(second)
    total = sum(weights.values())
    return (
        sum(weight for word, weight in weights.items() if word in other_weights) / total
        if total
        else 0.0
    )


@lru_cache(maxsize=CACHED_SIGNATURES_MAX)
def _weights(ticket: str) -> Mapping[str, float]:
    title, _, text = ticket.partition(TITLE_SEPARATOR)
    return {word: _weight(word) * TEXT_WORD_WEIGHT for word in text.split()} | {
        word: _weight(word) for word in title.split()
    }


def _weight(word: str) -> float:
    return COMMON_WORD_WEIGHT if word in _COMMON_WORDS else 1.0


def _sum_of_squares(weights: Iterable[float]) -> float:
    return sum(weight * weight for weight in weights)
