"""Makes cases/instruction_following.jsonl: texts that are built to follow an instruction, or not.

Run it as `.venv/bin/python -m tests.verdicts.make_instruction_following`.
"""

# ruff: noqa: E501  # a line a text reads better than its parts
from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.verdicts.case_files import case, write

# An instruction, its arguments, texts that follow it, such in other clothes, texts that do not.
Entry = tuple[str, dict[str, Any], list[str], list[str], list[str]]

GERMAN = "Das Brot wird mit Mehl, Wasser und Salz gebacken, und der Teig muss lange ruhen."
ENGLISH = "The bread is baked with flour, water and salt, and the dough has to rest for long."
SPANISH = "El pan se hornea con harina, agua y sal, y la masa tiene que reposar mucho tiempo."
PORTUGUESE = "O pão é assado com farinha, água e sal, e a massa precisa descansar por muito tempo."
RUSSIAN = "Хлеб пекут из муки, воды и соли, а тесто должно долго отдыхать."
CHINESE = "面包是用面粉、水和盐烤制的,面团需要静置很长时间。"
JAPANESE = "パンは小麦粉と水と塩で焼かれ、生地は長く休ませる必要があります。"
FOOD = [GERMAN, ENGLISH, SPANISH, PORTUGUESE, RUSSIAN, CHINESE, JAPANESE]


def others(*own: str) -> list[str]:
    """The sentences in other languages, and what is in none."""
    return [text for text in FOOD if text not in own] + ["42", "..."]


def built() -> Iterator[Entry]:
    """Texts whose numbers are known, since they are made of so many parts."""
    for number in (2, 3, 5):
        items = [f"step {n}" for n in range(number)]
        bullets = "\n".join(f"* {item}" for item in items)
        hyphens = "\n".join(f"- {item}" for item in items)
        yield "detectable_format:number_bullet_lists", {"num_bullets": number}, [bullets, hyphens], [
            f"Do this:\n\n{bullets}\n\n---\n\nDone.", f"{bullets}\n* * *\n", f"**All steps**\n\n{hyphens}",
            f"*Note* first.\n{bullets}", f"{hyphens}\n-5 degrees is cold.", "\n".join(f"+ {i}" for i in items),
            "\n\n".join(f"- {i}" for i in items), "\n".join(f"- **{i}**: now" for i in items), f"{hyphens}\n***\nEnd",
        ], [
            f"{bullets}\n* one more", bullets.partition("\n")[2], " ".join(items), bullets.replace("* ", ""),
            "\n".join(f"{n}. {i}" for n, i in enumerate(items)), f"{bullets.rpartition(chr(10))[0]}\n---",
            "\n".join(f"*{i}*" for i in items), "\n".join(["---"] * number),
        ]  # fmt: skip
        parts = [f"Part {n} is here." for n in range(number)]
        yield "length_constraints:number_paragraphs", {"num_paragraphs": number}, ["\n***\n".join(parts)], [
            "\n\n***\n\n".join(parts), "\n***\n***\n".join(parts), "***\n" + "\n***\n".join(parts) + "\n***",
            "\n***\n".join([*parts[:-1], f"***So*** {parts[-1]}"]), "\r\n***\r\n".join(parts),
        ], ["\n***\n".join([*parts, "more"]), "\n***\n".join(parts[1:]), "\n\n".join(parts), "\n---\n".join(parts)]  # fmt: skip
        yield "length_constraints:nth_paragraph_first_word", {"num_paragraphs": number, "nth_paragraph": number, "first_word": "last"}, [
            "\n\n".join([*parts[1:], "Last, it ends."]),
        ], [
            "\n\n\n\n".join([*parts[1:], "Last it ends."]), "\n\n" + "\n\n".join([*parts[1:], "last"]),
            "\n\n".join([*parts[1:], "**Last** it ends."]), "\n \n".join([*parts[1:], "\"Last\" it ends."]),
            "\r\n\r\n".join([*parts[1:], "LAST. It ends."]),
        ], [
            "\n\n".join([*parts, "Last, it ends."]), "\n\n".join([*parts[1:], "At last it ends."]),
            "\n\n".join(["Last", *parts[1:]]), "\n".join([*parts[1:], "Last, it ends."]), "\n\n".join([*parts[1:], "Lasting"]),
        ]  # fmt: skip
        words = ["bread"] * number
        yield "length_constraints:number_words", {"num_words": number, "relation": "at least"}, [" ".join(words)], ["\n".join(words), ", ".join(words)], [" ".join(words[1:]), "!" * number]  # fmt: skip
        yield "length_constraints:number_words", {"num_words": number, "relation": "less than"}, [" ".join(words[1:])], ["... " + ", ".join(words[1:])], [" ".join(words)]  # fmt: skip
        yield "detectable_format:number_highlighted_sections", {"num_highlights": number}, [" ".join(f"*a{n}*" for n in range(number))], [
            " ".join(f"**a{n}**" for n in range(number)), "\n".join(f"* *a{n} b*" for n in range(number)), " ".join(f"***a{n}***" for n in range(number)),
        ], [" ".join(f"*a{n}*" for n in range(number - 1)), " ".join(f"{n} * {n} *" for n in range(number)), "* *" * number, "\n".join(["***"] * number)]  # fmt: skip
        yield "detectable_content:number_placeholders", {"num_placeholders": number}, [" ".join(f"[name {n}]" for n in range(number))], ["\n".join(f"- [a{n}], now" for n in range(number))], ["[]" * number, "[ ] " * number, "[a] " * (number - 1), "(a) " * number]  # fmt: skip


BY_HAND: list[Entry] = [
    ("paragraphs:paragraphs2", {}, ["One.\n\nTwo."], ["One.\n\n\n\nTwo.", "One.\n\n\nTwo.", "\n\nOne.\n\nTwo.\n\n", "One.\r\n\r\nTwo.", "One.\n  \nTwo.", "A\nB\n\nC\nD"], ["One.", "One.\nTwo.", "One.\n\nTwo.\n\nThree.", "One.\n\n\n\n"]),
    ("paragraphs:paragraphs", {}, ["One.\n***\nTwo."], ["One. *** Two.", "One.\n\n***\n\nTwo.", "One.\n***\n***\nTwo."], ["One.\n\nTwo.", "One ***two*** three.", "One.\n***\nTwo.\n***\nThree."]),
    ("change_case:english_capital", {}, ["THE BREAD IS BAKED WITH FLOUR, WATER AND SALT, AND THE DOUGH HAS TO REST."], ["SCHOOL OPENS MONDAY. BRING A PEN.", "OK.", "NASA BUILT IT.", "PARIS, ROME, OSLO", "I AM 42!", "**BREAD** IS GOOD."], ["School opens monday.", "SCHOOL OPENS MONDAY. Bring a pen.", "42", GERMAN.upper(), RUSSIAN.upper(), "ДА."]),
    ("change_case:english_lowercase", {}, [ENGLISH.lower()], ["ok.", "school opens monday.", "bread is 42 cents!", "paris, rome, oslo"], [ENGLISH, "OK", "42", GERMAN.lower(), RUSSIAN.lower(), "да."]),
    ("language:response_language", {"language": "de"}, [GERMAN], [f"**{GERMAN}**", f"- {GERMAN}\n- Fertig."], others(GERMAN)),
    ("language:response_language", {"language": "DE"}, [], [GERMAN], [ENGLISH]),
    ("language:response_language", {"language": "de-AT"}, [], [GERMAN], [ENGLISH, RUSSIAN]),
    ("language:response_language", {"language": "German"}, [], [GERMAN], [ENGLISH]),
    ("language:response_language", {"language": "pt-BR"}, [], [PORTUGUESE], others(PORTUGUESE)),
    ("language:response_language", {"language": "pt_PT"}, [], [PORTUGUESE], [GERMAN]),
    ("language:response_language", {"language": "es"}, [SPANISH], [f"«{SPANISH}»"], others(SPANISH)),
    ("language:response_language", {"language": "en"}, [ENGLISH], [f"# Bread\n{ENGLISH}"], others(ENGLISH)),
    ("language:response_language", {"language": "ru"}, [RUSSIAN], [f"**{RUSSIAN}**"], others(RUSSIAN)),
    ("language:response_language", {"language": "ja"}, [JAPANESE], ["はい。"], others(JAPANESE)),
    ("language:response_language", {"language": "zh"}, [CHINESE], ["好。", "答案是42。"], others(CHINESE)),
    ("language:response_language", {"language": "el"}, ["Το ψωμί ψήνεται."], ["Ναι."], [RUSSIAN, ENGLISH, "42"]),
    ("language:response_language", {"language": "ko"}, ["빵은 밀가루와 물로 굽습니다."], ["네."], [CHINESE, ENGLISH, "42"]),
    ("detectable_format:json_format", {}, ['{"a": 1}'], ["```json\n{\"a\": [1, 2.5e3]}\n```", "```\n[]\n```", '{"a": "NaN"}', " {\"a\":\n null} ", '"text"', "true", '{"é": "\\u00e9"}', "1" * 5000], ['{"a": NaN}', "NaN", "[Infinity]", "-Infinity", "```json\n{\"x\": -Infinity}\n```", "{'a': 1}", '{"a": 1,}', "{a: 1}", 'So: {"a": 1}', "[1", '{"a": 1} // one', "nan", "undefined"]),
    ("detectable_format:constrained_response", {}, ["My answer is yes."], ["I think so. My answer is yes.", "**My answer is no.**", "My answer is maybe. It depends."], ["Yes.", "My answer is yes. My answer is no.", "My answer is yes. My answer is no. My answer is maybe.", "my answer is yes"]),
    ("detectable_format:title", {}, ["<<Bread>>\nIt is baked."], ["# <<Bread>>\nIt is.", "<<Bread and salt>>", "It is <<x>> here."], ["Bread", "<Bread>", "<<>>", "<< >>", "# Bread"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}, ["Section 1\na\nSection 2\nb"], ["**Section 1**\na\n\n**Section 2**\nb", "## Section 1\na\n## Section 2\nb\n## Section 3\nc"], ["Section 1\na", "Part 1\na\nPart 2\nb", "Section one. Section two."]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Bye.\nP.S. More."], ["Bye.\n**P.S.** More.", "Bye.\nP. S. More.", "bye.\np.s. more."], ["Bye.", "PS: More.", "P.P.S More."]),
    ("startend:quotation", {}, ['"Bread."'], ["“Bread.”", ' "Bread."\n', '"He said "no"."'], ["Bread.", '"Bread.', "'Bread.'", '""', '" "', '"']),
    ("startend:end_checker", {"end_phrase": "The end."}, ["It was. The end."], ["It was. **The end.**", '"It was. The end."', "It was. THE END.\n", "It was.\n\n_The end._"], ["The end. Or not.", "It was.", "Bathe end.", "The end"]),
    ("startend:end_checker", {"end_phrase": "Any other questions?"}, ["Done. Any other questions?"], ["Done.\n\n*Any other questions?*"], ["Any other questions? No.", "Many other questions?", "Any questions?"]),
    ("combination:two_responses", {}, ["Bread.\n******\nSalt."], ["Bread. ****** Salt.", "******\nBread.\n******\nSalt."], ["Bread.", "Bread.\n***\nSalt.", "Bread.\n******\nBread.", "a\n******\nb\n******\nc", "******"]),
    ("punctuation:no_comma", {}, ["Bread is good."], ["Bread; salt. 1.5!"], ["Bread, salt.", "1,000", ","]),
    ("punctuation:punctuation_dot", {}, ["Bread is good!"], ["Bread; salt: good?"], ["Bread.", "1.5"]),
    ("keywords:existence", {"keywords": ["salt", "C++"]}, ["Salt in C++."], ["**SALT**: c++"], ["Salt.", "C+ and salt", "alt C++"]),
    ("keywords:forbidden_words", {"forbidden_words": ["salt"]}, ["Bread."], ["Salted bread.", "asphalt"], ["Salt.", "No salt!", "**salt**"]),
    ("keywords:frequency", {"keyword": "salt", "frequency": 2, "relation": "at least"}, ["salt and salt"], ["Salt, SALT!", "salt salt salt"], ["salt", "pepper"]),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 3, "let_relation": "at least"}, ["eee"], ["Extreme", "bee, E"], ["ee", "bread"]),
    ("first_word:first_word_answer", {"first_word": "Hello"}, ["Hello world."], ["hello world.", "\nHELLO there"], ["Oh hello.", "Hell", "World"]),
    ("last_word:last_word_answer", {"last_word": "bread"}, ["I like bread."], ["I like **bread**.", "BREAD!"], ["Bread is good.", "I like breads."]),
    ("copy:copy", {"prompt_to_repeat": "Say hi"}, ["Say hi"], ["say hi\n", " SAY HI "], ["Say hi. Hi!", "hi", "Say"]),
    ("letters:letter_counting", {"N": 4, "relation": "less than"}, ["abc"], ["a-b-c 123"], ["abcd"]),
    ("count:lowercase_counting", {"N": 2}, ["one two THREE"], ["One TWO three four"], ["one two three"]),
    ("count:count_unique", {}, ["one two three"], ["One, two!"], ["one two one", "a a"]),
]  # fmt: skip

# Rows that no response can follow, and that are refused.
REFUSED: list[tuple[str, dict[str, Any]]] = [
    *[
        ("language:response_language", {"language": code})
        for code in ("tlh", "xx-YY", "eo", "pig latin", "")
    ],
    ("length_constraints:number_words", {"num_words": -1, "relation": "at least"}),
    ("length_constraints:number_words", {"num_words": 5, "relation": "about"}),
    ("length_constraints:number_words", {"relation": "at least"}),
    ("keywords:existence", {"keywords": []}),
    ("letters:no_such_instruction", {}),
]


def cases() -> Iterator[dict[str, Any]]:
    """Each text of each entry."""
    for source, entries in (("built of so many parts", list(built())), ("hand", BY_HAND)):
        for name, arguments, follow, clothes, fail in entries:
            row = {"instruction_id_list": [name], "kwargs": [arguments]}
            shown = json.dumps(arguments, ensure_ascii=False)
            for texts, right in ((follow, True), (clothes, True), (fail, False)):
                more = {"clothes": True} if texts is clothes else {}
                for text in texts:
                    why = f"{'follows' if right else 'does not follow'} {shown}"
                    yield case(row, text, float(right), why, source=source, **more)
    for name, arguments in REFUSED:
        row = {"instruction_id_list": [name], "kwargs": [arguments]}
        yield case(row, ENGLISH, None, "no response could follow it")


if __name__ == "__main__":
    write("instruction_following", cases())
