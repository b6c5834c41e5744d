// Package ethtool reads and changes what a driver does to frames: the requests of ethtool(8), of interfaces in the
// calling thread's network namespace.
//
// No library fits: github.com/mdlayher/ethtool lacks features and coalescing, and github.com/safchain/ethtool, up to
// v0.7.0, lets the kernel write to where a goroutine's stack was before it moved (its issue 139).
package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	featureNames = 4  // ETH_SS_FEATURES
	nameLen      = 32 // ETH_GSTRING_LEN
	maxFeatures  = 1 << 10
)

// RxDelay returns for how many microseconds a NIC may hold a received frame back before it interrupts. Many drivers do
// not say.
func RxDelay(link string) (usecs uint32, err error) {
	c := request(unix.ETHTOOL_GCOALESCE, 23) // struct ethtool_coalesce
	err = c.ask("delay of interrupts", link)
	return c.word(1), err
}

// Features returns which features are on, by their names in "ethtool -k".
func Features(link string) (map[string]bool, error) {
	names, err := namesOf(link)
	if err != nil {
		return nil, err
	}
	blocks := (len(names) + 31) / 32 // each: available, requested, active, never changed
	get := request(unix.ETHTOOL_GFEATURES, 2+4*blocks)
	get.put(1, uint32(blocks))
	if err := get.ask("features", link); err != nil {
		return nil, err
	}
	on := make(map[string]bool, len(names))
	for i, name := range names {
		if name != "" {
			on[name] = get.word(2+i/32*4+2)&(1<<(i%32)) != 0
		}
	}
	return on, nil
}

// Change turns features on and off. The kernel leaves alone, without an error, what the interface cannot change, and
// turns off what depends on what is off.
func Change(link string, features map[string]bool) error {
	names, err := namesOf(link)
	if err != nil {
		return err
	}
	blocks := (len(names) + 31) / 32 // each: which to change, to what
	set := request(unix.ETHTOOL_SFEATURES, 2+2*blocks)
	set.put(1, uint32(blocks))
	known := 0
	for i, name := range names {
		on, ok := features[name]
		if !ok {
			continue
		}
		known++
		at, bit := 2+i/32*2, uint32(1)<<(i%32)
		set.put(at, set.word(at)|bit)
		if on {
			set.put(at+1, set.word(at+1)|bit)
		}
	}
	if known < len(features) {
		return fmt.Errorf("ethtool: features of %s: this kernel does not know all of %v", link, features)
	}
	return set.ask("change features", link)
}

// namesOf returns the names of all features, by number.
func namesOf(link string) ([]string, error) {
	info := request(unix.ETHTOOL_GSSET_INFO, 5) // the sets asked for are 64 bits from word 2 on, then a length for each
	info.put64(2, 1<<featureNames)
	if err := info.ask("features", link); err != nil {
		return nil, err
	}
	n := info.word(4)
	if n == 0 || n > maxFeatures {
		return nil, fmt.Errorf("ethtool: features of %s: the kernel says it has %d", link, n)
	}
	all := request(unix.ETHTOOL_GSTRINGS, 3+int(n)*nameLen/4)
	all.put(1, featureNames)
	all.put(2, n)
	if err := all.ask("features", link); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = unix.ByteSliceToString(all[12+i*nameLen:][:nameLen])
	}
	return names, nil
}

// message is a request, and its answer: words of 32 bits of which the first is the command.
type message []byte

func request(command uint32, words int) message {
	m := make(message, 4*words)
	m.put(0, command)
	return m
}

func (m message) word(i int) uint32     { return binary.NativeEndian.Uint32(m[4*i:]) }
func (m message) put(i int, v uint32)   { binary.NativeEndian.PutUint32(m[4*i:], v) }
func (m message) put64(i int, v uint64) { binary.NativeEndian.PutUint64(m[4*i:], v) }

// ask makes the request on a socket of the thread's namespace as it is now.
func (m message) ask(what, link string) error {
	if len(link) >= unix.IFNAMSIZ {
		return fmt.Errorf("ethtool: %s of %s: %w", what, link, unix.ENODEV)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(ioctl(fd, link, m), unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("ethtool: %s of %s: %w", what, link, err)
	}
	return nil
}
