package api

import (
	"net"
	"sync"
	"syscall"
)

// How many connections users may hold at once, each of them and all together. Root, who is the prolog and the epilog,
// is not counted: no user can keep them from being served. All together, since with a user namespace one user has many
// ids. Each connection costs the agent a file descriptor for ten seconds at most.
const (
	maxPerUser  = 64
	maxAllUsers = 512
)

// limits are how many connections users may hold on one socket.
type limits struct{ each, all int }

// listener accepts connections, and closes at once what is too much.
type listener struct {
	*net.UnixListener
	users limits
	mu    sync.Mutex
	held  map[uint32]int
	all   int
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid := peerUID(c)
		if l.admit(uid) {
			return &conn{UnixConn: c, uid: uid, leave: sync.OnceFunc(func() { l.leave(uid) })}, nil
		}
		c.Close()
	}
}

func (l *listener) admit(uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid == 0 {
		return true
	}
	if l.held[uid] >= l.users.each || l.all >= l.users.all {
		return false
	}
	l.held[uid]++
	l.all++
	return true
}

func (l *listener) leave(uid uint32) {
	if uid == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.held[uid]--; l.held[uid] == 0 {
		delete(l.held, uid)
	}
}

// conn is a connection whose other end is known.
type conn struct {
	*net.UnixConn
	uid   uint32
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}

// nobody is the uid of a peer that the kernel would not name; it is never root.
const nobody = ^uint32(0)

// peerUID is who connected. The kernel translates ids: root of a user namespace is the user who made it.
func peerUID(c *net.UnixConn) uint32 {
	uid := nobody
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
				uid = cred.Uid
			}
		})
	}
	return uid
}
