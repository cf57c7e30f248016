"""Errors of a job's input; every message says what to do."""

from __future__ import annotations


class SparkJobError(Exception):
    """A job cannot begin, or cannot trust what it reads."""


class JavaMissing(SparkJobError):
    """Spark needs Java 17 or newer on this machine: install it, or use a cluster over Spark Connect."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java 17 or newer, found {found}: install a headless JRE "
            "(Debian and Ubuntu: openjdk-17-jre-headless, Fedora: java-17-openjdk-headless, macOS: "
            "brew install openjdk@17) and set JAVA_HOME, or name a Spark Connect server with --remote sc://host"
        )


class LedgerMissing(SparkJobError):
    """There is no ledger at the path: name the folder that a node's `ledger` setting names."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"no ledger at {path}: name the folder of a node's ledger, or one that has such folders in it"
        )


class LedgerEmpty(SparkJobError):
    """No segment is closed yet: wait for the node to close one, or stop it in order."""

    def __init__(self, paths: str) -> None:
        super().__init__(f"no closed segment in {paths}: a node closes one when it is full, old, or stops")


class LedgerDamaged(SparkJobError):
    """A manifest cannot be read: restore it, or move the segment away and the gap will be reported."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}; restore it, or move the segment away and have its gap reported")


class LedgerFiltered(SparkJobError):
    """An export left rows out: take all of them."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: an export of some rows only, which would look lost; export without --from, --until and "
            "--kind, and have reconcile choose by --from and --to"
        )


class PackageMissing(SparkJobError):
    """A package is missing where a job needs it."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"the package {package} is missing, needed for {purpose}: pip install {package}")


class NodeUnreachable(SparkJobError):
    """A node did not give its ledger: see that it runs, that workers reach it, that it knows the token."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"no ledger from {address}: {why}")


class OptionInvalid(SparkJobError):
    """An option of the data source is wrong."""
