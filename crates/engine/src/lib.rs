#![doc = "engine"]
