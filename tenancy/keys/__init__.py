"""Keys: where the key-encryption key comes from, and what is wrapped by it. `keyring` is the door to this room."""
