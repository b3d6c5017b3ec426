#![doc = "disk"]
