"""Other numbers and dates of the same form."""

import random
import re

from fairseq_tn.evaluation.robustness.names import other_of_class

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z]+")
_ORDINAL_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def other_number(text: str, rng: random.Random) -> str | None:
    """A text with each of its numbers changed: digits, number words, ordinals, months and days of the week.

    Years stay years, days of the month stay below 29, numbers keep their digits, commas and decimals.

    Returns:
        None if the text has no number that is known
    """
    changed = False

    def digits(match: re.Match[str]) -> str:
        nonlocal changed
        changed = True
        return _other_digits(match[0], text[match.end() :], rng)

    result = _NUMBER.sub(digits, text)
    result = re.sub(
        r"\b(\d+)(?:st|nd|rd|th)\b", lambda match: match[1] + _ordinal_ending(int(match[1])), result
    )

    def words(match: re.Match[str]) -> str:
        nonlocal changed
        other = other_of_class(match[0], rng) if match[0] != "may" else None
        changed |= other is not None
        return other or match[0]

    result = _WORD.sub(words, result)
    return result if changed and result != text else None


def _other_digits(number: str, following: str, rng: random.Random) -> str:
    plain = number.replace(",", "")
    if plain.isdigit() and len(plain) == 4 and "," not in number and 1000 <= int(plain) <= 2100:
        year = int(plain)
        decade = following[:1] == "s"
        others = [year + 10 * step if decade else year + step for step in range(-60, 61) if step]
        # not into the future, which would be told from the past at once
        return str(rng.choice([other for other in others if year > 2000 or other < 2000]))
    if plain.isdigit() and int(plain) <= 31 and "," not in number:
        value, most = int(plain), 9 if int(plain) < 10 else 28
        return str(rng.choice([n for n in range(1 if value < 10 else 10, most + 1) if n != value]))
    # the first digit differs, the others do not begin with 0
    first = re.search("[1-9]", number)
    place = first.start() if first else 0
    changed = []
    for index, character in enumerate(number):
        if not character.isdigit() or index < place:
            changed.append(character)
        elif index == place:
            changed.append(rng.choice([digit for digit in "123456789" if digit != character]))
        else:
            # round numbers stay round
            changed.append(character if character == "0" else rng.choice("123456789"))
    return "".join(changed)


def _ordinal_ending(number: int) -> str:
    return "th" if 10 <= number % 100 <= 20 else _ORDINAL_ENDINGS.get(number % 10, "th")
