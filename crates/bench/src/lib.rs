#![doc = "bench"]
