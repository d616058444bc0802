"""Provider wire formats in both directions, sans-IO: bytes and values in, bytes and values out.

What a format offers says `format`, and `formats` lists them. The same codec serves the adapter that calls a
model, the gateway that stands in for one, and the tests of both.
"""
