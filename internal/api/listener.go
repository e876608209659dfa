package api

import (
	"net"
	"sync"
	"syscall"
)

// maxPerUser is the maximum number of open connections per user, and maxAllUsers is the maximum for all users together.
// The second limit is necessary because a single user can use many ids in a user namespace. Root's connections are
// exempt, so users cannot block the prolog or the epilog. Each connection uses one of the agent's file descriptors for
// at most ten seconds.
const (
	maxPerUser  = 64
	maxAllUsers = 512
)

// limits holds the maximum number of open connections on one socket, for each user and for all users together.
type limits struct{ each, all int }

// listener accepts connections and immediately closes those that exceed the limits.
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
		p := peerOf(c)
		if l.admit(p.uid) {
			return &conn{UnixConn: c, peer: p, leave: sync.OnceFunc(func() { l.leave(p.uid) })}, nil
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

// conn is a connection and its peer. Close calls leave.
type conn struct {
	*net.UnixConn
	peer
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}

// nobody is the uid assumed for a peer whose uid the kernel did not report. It differs from root's uid.
const nobody = ^uint32(0)

// peer is the process that connected.
type peer struct {
	uid uint32
	pid int // 0 if unknown
}

// peerOf returns the process that connected. Its uid is nobody if the kernel did not report one. The kernel translates
// uids: for a process that is root in a user namespace, it reports the uid of the user who created the namespace.
func peerOf(c *net.UnixConn) peer {
	p := peer{uid: nobody}
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
				p = peer{cred.Uid, int(cred.Pid)}
			}
		})
	}
	return p
}
