import asyncio

from extender.gathering import GatheredTransport


class Transport:
    """Remembers what was written, and that it was closed."""

    def __init__(self):
        self.written = []

    def write(self, data):
        self.written.append(data)

    def close(self):
        self.written.append("closed")

    def get_extra_info(self, name):
        return f"info of {name}"


def run(scenario):
    inner = Transport()

    async def main():
        await scenario(GatheredTransport(inner, asyncio.get_running_loop()), inner)

    asyncio.run(main())
    return inner.written


def test_pieces_of_one_turn_go_out_as_one_in_their_order():
    async def scenario(transport, inner):
        for piece in (b"head", b" and ", b"body"):
            transport.write(piece)
        assert inner.written == []
        await asyncio.sleep(0)

    assert run(scenario) == [b"head and body"]


def test_pieces_of_later_turns_are_not_held_back():
    async def scenario(transport, _):
        transport.write(b"first")
        await asyncio.sleep(0)
        transport.write(b"second")
        await asyncio.sleep(0)

    assert run(scenario) == [b"first", b"second"]


def test_closing_writes_what_is_held_first():
    async def scenario(transport, _):
        transport.write(b"last words")
        transport.close()
        await asyncio.sleep(0)

    assert run(scenario) == [b"last words", "closed"]


def test_everything_else_is_the_transports():
    async def scenario(transport, _):
        transport.write(transport.get_extra_info("peername").encode())
        await asyncio.sleep(0)

    assert run(scenario) == [b"info of peername"]
