package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"multiedge/internal/secure"
)

// maxKeyFile bounds what is read of a key file, in bytes.
const maxKeyFile = 4096

// ReadKey reads a private key. Symbolic links are followed. It refuses a file that its group or others may read or
// write, and one that holds anything but a key: the error says what to do. The error is fs.ErrNotExist when there is no
// such file.
func ReadKey(path string) (secure.PrivateKey, error) {
	text, err := readPrivate(path)
	if err != nil {
		return secure.PrivateKey{}, fmt.Errorf("key file %s: %w", path, err)
	}
	k, err := secure.ParsePrivateKey(string(text))
	if err != nil {
		return k, fmt.Errorf("key file %s is malformed: %w; move it away and a new key is made (peers must then "+
			"authorise that one), or restore it", path, err)
	}
	return k, nil
}

func readPrivate(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("others than its owner may use it (mode %04o), so it is no secret: chmod 600 %s; if "+
			"somebody may have read it, remove it to have a new key made",
			mode, path)
	}
	return io.ReadAll(io.LimitReader(f, maxKeyFile))
}

// openRegular opens an ordinary file for reading. It does not wait for pipes.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("this is not an ordinary file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// cause strips the path from an error: it is said before.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}

// CreateKey writes a private key to a new file of mode 0600, and makes its directory with mode 0700 if there is none.
// The file appears whole or not at all. What exists is never overwritten, symbolic links included: the error is then
// fs.ErrExist. The file gets the owner of its directory if the caller may give it away, so that root can prepare the
// key of a service.
func CreateKey(path string, k secure.PrivateKey) error {
	dir := filepath.Dir(path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = writeNew(path, []byte(k.Text()+"\n"))
	}
	if err != nil {
		return fmt.Errorf("key file %s: %w", path, cause(err))
	}
	return nil
}

func writeNew(path string, text []byte) error {
	tmp, err := writeTemp(path, text, 0o600)
	if err != nil {
		return err
	}
	err = os.Link(tmp, path) // a rename would overwrite
	return errors.Join(err, os.Remove(tmp), syncDir(filepath.Dir(path)))
}

// writeTemp writes a new file beside path, durably, with the mode and the owner of the directory, and returns its name.
func writeTemp(path string, text []byte, mode fs.FileMode) (name string, err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".") // 0600
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(text); err != nil {
		return "", err
	}
	if err = f.Chmod(mode); err != nil {
		return "", err
	}
	if st, e := os.Stat(dir); e == nil && os.Geteuid() == 0 {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 {
			if err = f.Chown(int(sys.Uid), int(sys.Gid)); err != nil {
				return "", err
			}
		}
	}
	return f.Name(), f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems have nothing to sync
		return err
	}
	return nil
}

// LoadKey reads the private key, or makes one where there is none. Of two that do so at once both get the same key.
// made says that this call made it.
func LoadKey(path string) (k secure.PrivateKey, made bool, err error) {
	k, err = ReadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	k = secure.NewPrivateKey()
	err = CreateKey(path, k)
	if !errors.Is(err, fs.ErrExist) {
		return k, err == nil, err
	}
	k, err = ReadKey(path) // somebody was quicker
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("key file %s is a symbolic link that leads nowhere: remove it, or make what it names by: "+
			"edgectl key new FILE", path)
	}
	return k, false, err
}
