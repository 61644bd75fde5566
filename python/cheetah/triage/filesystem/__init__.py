"""What The Sleuth Kit does not tell of volumes: free blocks, and NTFS records before a listing."""
