"""Print the counts of the last whole campaign; `make chaos` ends so."""

from tests.chaos.campaign import COUNTS, table

if __name__ == "__main__":
    print(table(COUNTS.read_text().splitlines()), end="")
