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

// Key is a key of AES-256. It prints as nothing of what it is.
type Key [32]byte

// NewKey returns a random one.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// Format keeps the key out of whatever prints it.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "codec.Key") }

// AEAD returns AES-256-GCM with random nonces: its NonceSize is 0, for Seal puts the
// nonce in front and Open takes it from there. Safe for concurrent use. One key
// seals 2^32 times at most (NIST SP 800-38D, 8.3).
func (k Key) AEAD() cipher.AEAD {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // of another length only
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of another block size only
	}
	return aead
}

// KeyProvider has the keys of a user: what data keys are encrypted with.
type KeyProvider interface {
	// Keys returns the present key and behind it those before it, which open what
	// they have sealed and seal nothing. It is called when a database first needs a
	// key, for a rekey, and every few minutes before something is written. An error
	// means that the keys cannot be had now: nothing is dropped because of it.
	// Safe for concurrent use.
	Keys(ctx context.Context) ([]Key, error)
}

// KeyFile returns the keys of a file: one a line, 64 hexadecimal digits each, as
// "openssl rand -hex 32" prints them. The first is the present one. The file is read
// each time, so a new one counts without a restart. Nobody but its owner may be able
// to read or write it, and a group, as Kubernetes mounts a Secret under fsGroup, only
// to read it.
func KeyFile(path string) KeyProvider { return keyFile(path) }

type keyFile string

// maxKeyText bounds what is read of a file or a command, in bytes.
const maxKeyText = 64 << 10

// Keys implements KeyProvider.
func (path keyFile) Keys(context.Context) ([]Key, error) {
	// A named pipe would be waited for; it is refused below.
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

// commandTimeout is how long a key command may take.
const commandTimeout = 10 * time.Second

// KeyCommand returns the keys that a command prints to its standard output, in the
// form of KeyFile. It is run each time, directly and through no shell, and killed after
// 10 s. What it writes to standard error is no part of any error.
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
	cmd.WaitDelay = time.Second // for a pipe that a child of its holds
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

// limitedBuffer keeps the first bytes and one more.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.limit+1-b.Len())])
	return len(p), nil
}

// parseKeys reads one key a line. Its errors name lines, never what is in them.
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
