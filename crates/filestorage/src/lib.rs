#![doc = "filestorage"]
