/* nic.c: the files by which some programs look for RDMA NICs. */
int nic_files(void); /* 0, or -1 after it said why not */
