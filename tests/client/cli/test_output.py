"""Text of users in tables and errors: shown as it is, whatever it is."""

from __future__ import annotations

import pytest

from tarry.client.cli.output import cell, in_one_line, out, print_rows, words


@pytest.mark.parametrize("text", ["order:100:eu", r"a\[/b]", "[/x]", "[red]", "a\\", r"\[bold]", ":x:"])
def test_nothing_in_a_text_is_taken_for_markup_or_an_emoji(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows([{"tag": text}], ["tag"])
    assert text in capsys.readouterr().out
    words().print(f"[bold]{cell(text)}[/bold] is told", soft_wrap=True)
    assert capsys.readouterr().err == f"{text} is told\n"


def test_what_would_steer_the_terminal_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    out().print(cell("a\x1b[2Jb\x07\x9bc\tdé"))
    assert capsys.readouterr().out.startswith(r"a\x1b[2Jb\x07\x9bc")
    assert in_one_line("a\nb\x1b") == r"a\nb\x1b"
