"""What a device plugin does that a kubelet takes without a word, and that hurts later; and what to do about it."""
