"""What tests need to watch the system calls of a process, and to come between them."""
