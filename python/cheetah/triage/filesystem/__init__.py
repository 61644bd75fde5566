"""Facts about volumes that The Sleuth Kit's bindings lack: free blocks, and NTFS records before a listing."""
