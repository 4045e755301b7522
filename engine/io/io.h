/* io.h: tensors from and to files. Paths are the caller's; the tensors lie on host devices, other devices are staged by
 * the caller, who also makes sure that a tensor's values are there (nothing deferred) before it is written.
 *
 * Reads hand out a tensor that the caller owns; `device` is a host device, NULL = "cpu". Gzip files are read as what they
 * hold. Errors: AG_E_FILE for what the system refuses, AG_E_FORMAT for content that is damaged or not supported,
 * AG_E_MEMORY, AG_E_INTERRUPTED; nothing is leaked and *out is untouched. */
#ifndef ARGAND_IO_IO_H
#define ARGAND_IO_IO_H

#include "argand.h"

/* npy_read reads a NumPy .npy file, versions 1.0 to 3.0 (NumPy Enhancement Proposal 1). A file in Fortran order gives a
 * view with the strides that the file has. */
ag_status npy_read(const char *path, ag_device *device, ag_tensor **out);
/* npy_write writes version 1.0 in row-major order to path + ".tmp" and renames it to path: on failure the old file stays.
 * bf16 has no place in the format and gives AG_E_DTYPE. */
ag_status npy_write(const char *path, const ag_tensor *tensor);
/* idx_read reads an IDX file, the layout of the MNIST files: big-endian, 1 to 8 dims. */
ag_status idx_read(const char *path, ag_device *device, ag_tensor **out);

#endif
