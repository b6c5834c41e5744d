/* open.c, domain.c: what fi_getinfo's answers open. Unlocked. */
#ifndef EDGE_OFI_PROVIDER_H
#define EDGE_OFI_PROVIDER_H

#include "endpoint.h"

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);

#endif
