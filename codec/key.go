package codec

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Key is a key of AES-256. Printing it does not reveal it.
type Key [32]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// Format hides the key from fmt.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "codec.Key") }

// AEAD returns AES-256-GCM with random nonces: its NonceSize is 0, because Seal prepends
// the nonce and Open reads it from there. It is safe for concurrent use. One key may seal
// at most 2^32 times (NIST SP 800-38D, 8.3).
func (k Key) AEAD() cipher.AEAD {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // only for another key length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for another block size
	}
	return aead
}

// KeyProvider returns the keys of a user. They encrypt the data keys.
type KeyProvider interface {
	// Keys returns the present key, followed by the previous ones. The previous keys only
	// open what they have sealed. Keys is called when a database first needs a key, and
	// for a rekey. An error means that the keys are not available now: no data is dropped
	// because of it. Keys is safe for concurrent use.
	Keys(ctx context.Context) ([]Key, error)
}

// KeyFile returns the keys in a file, one per line, each as 64 hexadecimal digits, as
// "openssl rand -hex 32" prints them. The first key is the present one. The file is read
// for each call, so a new key is used without a restart. Only the owner may be able to
// write the file, and only the owner and the group may be able to read it (Kubernetes
// mounts a Secret with fsGroup so that the group can read it).
func KeyFile(path string) KeyProvider { return keyFile(path) }

type keyFile string

// maxKeyText limits the size, in bytes, of a key file or the output of a key command.
const maxKeyText = 64 << 10

// Keys implements KeyProvider.
func (path keyFile) Keys(context.Context) ([]Key, error) {
	// O_NONBLOCK: opening a named pipe would block; it is refused below.
	f, err := os.OpenFile(string(path), os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read key file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("key file %s is no regular file", string(path))
	case info.Mode().Perm()&0o037 != 0:
		return nil, fmt.Errorf("key file %s has mode %04o: others than its owner may use it; chmod 0600 it, or mount the Secret with defaultMode: 0400",
			string(path), info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyText+1))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", string(path), err)
	}
	return keys, nil
}

// commandTimeout is the maximum run time of a key command.
const commandTimeout = 10 * time.Second

// KeyCommand returns the keys that a command prints to its standard output, in the format
// of KeyFile. The command is run for each call, without a shell, and killed after 10 s.
// Its standard error is discarded.
func KeyCommand(name string, args ...string) KeyProvider { return keyCommand{name, args} }

type keyCommand struct {
	name string
	args []string
}

// Keys implements KeyProvider.
func (c keyCommand) Keys(ctx context.Context) ([]Key, error) {
	if c.name == "" {
		return nil, errors.New("key command is empty")
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.WaitDelay = time.Second // for a pipe that a child process keeps open
	out := &limitedBuffer{limit: maxKeyText}
	cmd.Stdout = out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		var keys []Key
		if keys, err = parseKeys(out.Bytes()); err == nil {
			return keys, nil
		}
	}
	return nil, fmt.Errorf("key command %s: %w", c.name, err)
}

// limitedBuffer keeps up to limit+1 bytes and discards the rest.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.limit+1-b.Len())])
	return len(p), nil
}

// parseKeys parses one key per line. Its errors name line numbers and never the content.
func parseKeys(text []byte) (keys []Key, err error) {
	const want = "want 64 hexadecimal digits, as openssl rand -hex 32 prints"
	if len(text) > maxKeyText {
		return nil, fmt.Errorf("longer than %d bytes; %s", maxKeyText, want)
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var k Key
		if len(line) != hex.EncodedLen(len(k)) {
			return nil, fmt.Errorf("line %d is %d bytes long; %s", number, len(line), want)
		}
		if _, err := hex.Decode(k[:], line); err != nil {
			return nil, fmt.Errorf("line %d is not hexadecimal; %s", number, want)
		}
		if k == (Key{}) {
			return nil, fmt.Errorf("line %d is the key of zeros, which is none", number)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("empty; " + want)
	}
	return keys, nil
}
