"""Command lines of the scripts in this folder: mistakes cost one line."""
import argparse
import os
import sys


class Parser(argparse.ArgumentParser):
    """Argument parser that prints the mistake without the usage text."""

    def error(self, message):
        """Print one line and leave."""
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def parser(doc):
    """Return a parser described by the first line of a module's text."""
    return Parser(description=doc.split("\n")[0])


def run(main):
    """Call main; a bad file or value is reported in one line."""
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {error}")
