"""What a model says: messages, chunks, their assembly, failures, and the registry of providers.

The room knows no wire format and no log. Adapters produce the chunks that `types` describes, the loop
consumes them, and replay puts recorded ones in their place: all three meet here and nowhere else.
"""
