#![doc = "zeo"]
