"""Certificates and tokens that are read again: when, from where, and what a bad file changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tarry.node.config import NodeConfig
from tarry.node.config_source import ConfigSource
from tarry.node.edge.tls import Certificates
from tarry.node.reload import Reload, ReloadStatus
from tests.cluster.authority import Authority

HEAD = 'node = "n1"\ndata = "d"\nlisten = "127.0.0.1:1"\npeer_token = "p"\nmembers = {n1 = "127.0.0.1:1"}\n'
SHOP = '[tokens.shop]\nproduce = ["orders"]\n'
SECRET = "S3CR3T-TOKEN"


class Reloading:
    """A configuration in files, with what was taken into force."""

    def __init__(self, folder: Path, text: str = HEAD + SHOP, tokens: str | None = None) -> None:
        self.file, self.tokens_file = folder / "node.toml", folder / "tokens.toml"
        if tokens is not None:
            self.tokens_file.write_text(tokens)
            text = f'tokens_file = "{self.tokens_file}"\n{text}'
        self.file.write_text(text)
        self.taken: list[tuple[NodeConfig, Certificates | None]] = []
        source = ConfigSource(self.file, {})
        self.status = ReloadStatus()
        self.reload = Reload(source, source.load(), self._take, self.status, lambda: 42)

    def _take(self, config: NodeConfig, certificates: Certificates | None) -> int:
        self.taken.append((config, certificates))
        return 0

    async def looks(self, times: int) -> list[set[str]]:
        """Look so often; return the tokens that were taken since, each time."""
        self.taken.clear()
        for _ in range(times):
            await self.reload.look()
        return [set(config.tokens) for config, _ in self.taken]


def replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


async def test_a_file_that_has_changed_is_read_once_it_stays_as_it_is(tmp_path: Path) -> None:
    play = Reloading(tmp_path)
    assert await play.looks(3) == []
    replace(play.file, HEAD)
    assert await play.looks(1) == []
    replace(play.file, HEAD + SHOP.replace("shop", "half-written"))
    assert await play.looks(1) == []
    assert await play.looks(3) == [{"half-written"}]
    assert (play.status.done, play.status.at_ms, play.status.failure) == (1, 42, "")


async def test_what_is_asked_for_is_read_at_once(tmp_path: Path) -> None:
    play = Reloading(tmp_path)
    replace(play.file, HEAD)
    play.reload.ask()
    assert await play.looks(1) == [set()]
    assert await play.looks(2) == []


async def test_tokens_come_from_their_own_file_too(tmp_path: Path) -> None:
    play = Reloading(tmp_path, tokens="[tokens.mail]\noperate = true\n")
    play.reload.ask()
    assert await play.looks(1) == [{"shop", "mail"}]
    replace(play.tokens_file, 'peer_tokens_accepted = ["next"]\n')
    assert await play.looks(2) == [{"shop"}]
    assert play.taken[0][0].peer_tokens_accepted == ("next",)


async def test_a_file_behind_a_link_is_noticed_when_the_link_leads_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens.toml").write_text(f"[tokens.{name}]\n")
    link = tmp_path / "mounted"
    link.symlink_to("one")
    (tmp_path / "tokens.toml").symlink_to("mounted/tokens.toml")
    play = Reloading(tmp_path, f'tokens_file = "{tmp_path}/tokens.toml"\n{HEAD}')
    (tmp_path / "new").symlink_to("other")
    (tmp_path / "new").rename(link)
    assert await play.looks(2) == [{"other"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'[tokens."{SECRET}"]\nproduce = "orders"\n', "tokens.***.produce"),
        (f'[tokens."{SECRET}"\n', "tokens_file: "),
        (
            f'["{SECRET}"]\nproduce = ["orders"]\n',
            "another key than peer_token, peer_tokens",
        ),
        (f'tokens = "{SECRET}"\n', "tokens"),
        (None, "No such file"),
        ("", "is empty"),
    ],
)
async def test_a_bad_file_changes_nothing_and_is_told_without_its_secrets(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play = Reloading(tmp_path, HEAD, "[tokens.mail]\n")
    if text is None:
        play.tokens_file.unlink()
    else:
        replace(play.tokens_file, text)
    assert await play.looks(4) == []
    assert said in play.status.failure
    assert SECRET not in play.status.failure + capsys.readouterr().out
    assert play.status.done == 0
    replace(play.tokens_file, "[tokens.post]\n")
    assert await play.looks(2) == [{"post"}]
    assert (play.status.done, play.status.failure) == (1, "")


async def test_keys_that_are_read_at_a_start_only_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play = Reloading(tmp_path)
    replace(play.file, f"damaged_data = 'rejoin'\n{HEAD}[limits]\nkeys_max = 3\n")
    assert await play.looks(2) == [set()]
    printed = capsys.readouterr().out
    assert "limits" in printed
    assert "damaged_data" in printed


async def test_a_key_without_its_certificate_waits_for_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("n1", "/CN=n1")
    authority.sign("next", "/CN=n1")
    paths = "".join(f'{key} = "{value}"\n' for key, value in authority.paths("n1").items())
    play = Reloading(tmp_path, f"{HEAD}[tls]\n{paths}")
    (tmp_path / "next.key").rename(tmp_path / "n1.key")
    assert await play.looks(3) == []
    assert "must be PEM that goes together" in play.status.failure
    (tmp_path / "next.pem").rename(tmp_path / "n1.pem")
    assert await play.looks(2) == [set()]
    [(_, certificates)] = play.taken
    assert certificates is not None
    assert certificates.certificate == (tmp_path / "n1.pem").read_bytes()


async def test_tls_that_becomes_mutual_waits_for_a_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("n1", "/CN=n1")
    paths = [f'{key} = "{value}"\n' for key, value in authority.paths("n1").items()]
    play = Reloading(tmp_path, f"{HEAD}[tls]\n{''.join(paths[:2])}")
    replace(play.file, f"{HEAD}[tls]\n{''.join(paths)}")
    assert await play.looks(2) == [set()]
    assert play.taken[0][1] is None


async def test_it_looks_by_itself_and_when_it_is_asked(tmp_path: Path) -> None:
    play = Reloading(tmp_path, f"reload_check_ms = 1\n{HEAD}")
    running = asyncio.create_task(play.reload.run())
    try:
        async with asyncio.timeout(20):
            replace(play.file, HEAD + SHOP)
            while not play.taken:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert play.taken[0][0].reload_check_ms == 2_000
            replace(play.file, HEAD)
            play.reload.ask()
            while len(play.taken) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
