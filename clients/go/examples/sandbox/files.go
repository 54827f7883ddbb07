package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/protobuf/proto"

	errorsv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/errors/v1"
	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

const (
	mostLinks = 40
	listSize  = 1000 // files of a page when the request says nothing
)

// files are those of the sandbox, as a call may use them. All of this runs in the sandbox.
type files struct {
	folder  string // all that the call may use, links followed; `/`: everything
	workdir string
}

func filesFor(asked *order) *files {
	folder := "/"
	if asked.Folder != "" {
		folder, _ = resolve(asked.Folder)
	}
	return &files{folder, asked.Workdir}
}

func (f *files) do(asked *order, in *bufio.Reader, send func(proto.Message) error) error {
	switch asked.Call {
	case "MakeWorkdir":
		request := &sandboxv1.WriteFilesRequest{}
		if err := readRequest(in, request); err != nil {
			return err
		}
		if err := os.MkdirAll(asked.Workdir, 0o755); err != nil {
			return fileError(asked.Workdir, err)
		}
		return f.write(request)
	case "ReadFiles":
		request := &sandboxv1.ReadFilesRequest{}
		if err := readRequest(in, request); err != nil {
			return err
		}
		return f.readAll(request, send)
	case "WriteFiles":
		request := &sandboxv1.WriteFilesRequest{}
		if err := readRequest(in, request); err != nil {
			return err
		}
		return f.write(request)
	case "ListFiles":
		request := &sandboxv1.ListFilesRequest{}
		if err := readRequest(in, request); err != nil {
			return err
		}
		answer, err := f.list(request)
		if err != nil {
			return err
		}
		return send(answer)
	case "ReadArchive":
		request := &sandboxv1.ReadArchiveRequest{}
		if err := readRequest(in, request); err != nil {
			return err
		}
		return f.pack(request, asked.MaxSize, send)
	default:
		request := &sandboxv1.WriteArchiveRequest{}
		if err := readRequest(in, request); err != nil {
			return err
		}
		return f.unpack(request, asked.MaxSize)
	}
}

// resolve gives the absolute path that one leads to, all links followed; parts that are not there stay.
func resolve(name string) (string, error) {
	rest := strings.Split(name, "/")
	at := "/"
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		target, err := os.Readlink(next)
		if err != nil { // no link, or not there
			at = next
			continue
		}
		if links++; links > mostLinks {
			return "", pathInvalid(name, "goes through too many links")
		}
		if strings.HasPrefix(target, "/") {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// place is where a path leads: a root that nothing leads out of, and a name in it.
type place struct {
	root *os.Root
	name string // `.` is the root itself
	full string
}

// locate finds where a path leads; with `last`, a link at its end is not followed.
func (f *files) locate(name []byte, last bool) (*place, error) {
	if bytes.IndexByte(name, 0) >= 0 {
		return nil, pathInvalid(string(name), "has a zero byte")
	}
	full := string(name)
	if full == "" || full[0] != '/' {
		full = f.workdir + "/" + full
	}
	base := ""
	if last {
		full = strings.TrimRight(full, "/")
		base = full[strings.LastIndex(full, "/")+1:]
		full = strings.TrimSuffix(full, base)
		if base == "" || base == "." || base == ".." {
			return nil, pathInvalid(string(name), "names no file")
		}
	}
	resolved, err := resolve(full)
	if err != nil {
		return nil, err
	}
	if base != "" {
		resolved = path.Join(resolved, base)
	}
	if !isBelow(resolved, f.folder) {
		return nil, leaseInvalid("", "the path lies outside of the lease's folder")
	}
	root, err := os.OpenRoot(f.folder)
	if err != nil {
		return nil, fileError(string(name), err)
	}
	inside := strings.TrimPrefix(strings.TrimPrefix(resolved, f.folder), "/")
	if inside == "" {
		inside = "."
	}
	return &place{root, inside, resolved}, nil
}

func (f *files) readAll(request *sandboxv1.ReadFilesRequest, send func(proto.Message) error) error {
	for i, name := range request.GetPaths() {
		info, err := f.read(i, name, request, send)
		var last *sandboxv1.ReadFilesResponse
		if err == nil {
			last = &sandboxv1.ReadFilesResponse{Part: &sandboxv1.ReadFilesResponse_Info{Info: info}}
		} else {
			last = &sandboxv1.ReadFilesResponse{
				Part: &sandboxv1.ReadFilesResponse_Error{Error: mesherr.FromError(err).Status()},
			}
		}
		last.Index = uint32(i)
		if err := send(last); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) read(
	index int, name []byte, request *sandboxv1.ReadFilesRequest, send func(proto.Message) error,
) (*sandboxv1.FileInfo, error) {
	at, err := f.locate(name, false)
	if err != nil {
		return nil, err
	}
	defer at.root.Close()
	file, info, err := at.open()
	if err != nil {
		return nil, fileError(string(name), err)
	}
	defer file.Close()
	if _, err := file.Seek(int64(min(request.GetOffset(), uint64(info.GetSize()))), io.SeekStart); err != nil {
		return nil, fileError(string(name), err)
	}
	left := request.GetMaxBytes()
	if left == 0 {
		left = 1 << 62
	}
	data := make([]byte, pieceBytes)
	for left > 0 {
		n, err := file.Read(data[:min(left, pieceBytes)])
		if n > 0 {
			left -= uint64(n)
			piece := &sandboxv1.ReadFilesResponse{
				Index: uint32(index), Part: &sandboxv1.ReadFilesResponse_Content{Content: data[:n]},
			}
			if err := send(piece); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fileError(string(name), err)
		}
	}
	return info, nil
}

// open opens a plain file, and nothing else: neither a pipe nor a device is waited for.
func (p *place) open() (*os.File, *sandboxv1.FileInfo, error) {
	file, err := p.root.OpenFile(p.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errNotPlain
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, infoOf(p.full, info, ""), nil
}

var errNotPlain = errors.New("is not a plain file")

func infoOf(full string, info fs.FileInfo, target string) *sandboxv1.FileInfo {
	made := &sandboxv1.FileInfo{
		Path: []byte(full), ModifiedUnixNano: uint64(info.ModTime().UnixNano()), LinkTarget: []byte(target),
	}
	switch {
	case info.Mode().IsRegular():
		made.Kind, made.Size = sandboxv1.FileKind_FILE_KIND_FILE, uint64(info.Size())
	case info.IsDir():
		made.Kind = sandboxv1.FileKind_FILE_KIND_FOLDER
	case info.Mode()&fs.ModeSymlink != 0:
		made.Kind = sandboxv1.FileKind_FILE_KIND_LINK
	}
	if is, ok := info.Sys().(*syscall.Stat_t); ok {
		made.Mode, made.Uid, made.Gid = is.Mode&0o7777, is.Uid, is.Gid
	}
	return made
}

func (f *files) write(request *sandboxv1.WriteFilesRequest) error {
	for _, one := range request.GetFiles() {
		if err := f.writeOne(one); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) writeOne(file *sandboxv1.FileContent) error {
	at, err := f.locate(file.GetPath(), true)
	if err != nil {
		return err
	}
	defer at.root.Close()
	if above := path.Dir(at.name); above != "." {
		if err := at.root.MkdirAll(above, 0o755); err != nil {
			return fileError(string(file.GetPath()), err)
		}
	}
	mode := fs.FileMode(file.GetMode() & 0o777)
	if mode == 0 {
		mode = 0o644
	}
	if file.Offset == nil {
		err = at.replace(file.GetContent(), mode)
	} else {
		err = at.writePiece(file.GetContent(), file.GetOffset(), mode)
	}
	return fileError(string(file.GetPath()), err)
}

// replace puts a whole file in the place of what is there.
func (p *place) replace(content []byte, mode fs.FileMode) error {
	if info, err := p.root.Lstat(p.name); err == nil && info.IsDir() {
		return errNotPlain
	}
	beside := path.Join(path.Dir(p.name), ".new-"+rand.Text())
	file, err := p.root.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Chmod(mode)
	}
	if late := file.Close(); err == nil {
		err = late
	}
	if err == nil {
		err = p.root.Rename(beside, p.name)
	}
	if err != nil {
		p.root.Remove(beside)
	}
	return err
}

// writePiece writes content at an offset of a file, which ends behind it.
func (p *place) writePiece(content []byte, offset uint64, mode fs.FileMode) error {
	info, err := p.root.Lstat(p.name)
	if offset == 0 && (err != nil || !info.Mode().IsRegular()) {
		return p.replace(content, mode)
	}
	if err != nil || offset > uint64(info.Size()) {
		return invalid("files.offset", "is beyond the end of the file")
	}
	if !info.Mode().IsRegular() {
		return errNotPlain
	}
	file, err := p.root.OpenFile(p.name, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, int64(offset))
	if err == nil {
		err = file.Truncate(int64(offset) + int64(len(content)))
	}
	if late := file.Close(); err == nil {
		err = late
	}
	return err
}

func (f *files) list(request *sandboxv1.ListFilesRequest) (*sandboxv1.ListFilesResponse, error) {
	at, err := f.locate(request.GetPath(), false)
	if err != nil {
		return nil, err
	}
	defer at.root.Close()
	info, err := at.root.Lstat(at.name)
	if err != nil {
		return nil, fileError(string(request.GetPath()), err)
	}
	var found []*sandboxv1.FileInfo
	if info.IsDir() {
		err = at.walk(request.GetRecursive(), false, func(one *place, info fs.FileInfo) error {
			found = append(found, one.info(info))
			return nil
		})
	} else {
		found = append(found, at.info(info))
	}
	if err != nil {
		return nil, fileError(string(request.GetPath()), err)
	}
	slices.SortFunc(found, func(a, b *sandboxv1.FileInfo) int { return bytes.Compare(a.Path, b.Path) })
	return page(found, request), nil
}

// page gives a page of a list; a token is the path before it, two digits a byte.
func page(found []*sandboxv1.FileInfo, request *sandboxv1.ListFilesRequest) *sandboxv1.ListFilesResponse {
	size := int(request.GetPageSize())
	if size == 0 {
		size = listSize
	}
	begin := 0
	if before, err := hex.DecodeString(request.GetPageToken()); err == nil && len(before) > 0 {
		begin, _ = slices.BinarySearchFunc(found, append(before, 0), func(one *sandboxv1.FileInfo, name []byte) int {
			return bytes.Compare(one.Path, name)
		})
	}
	answer := &sandboxv1.ListFilesResponse{Files: found[begin:]}
	if len(answer.Files) > size {
		answer.Files = answer.Files[:size]
		answer.NextPageToken = hex.EncodeToString(answer.Files[size-1].Path)
	}
	return answer
}

func (p *place) info(info fs.FileInfo) *sandboxv1.FileInfo {
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		target, _ = p.root.Readlink(p.name)
	}
	return infoOf(p.full, info, target)
}

// walk visits what is in a folder; links are not followed. With wholly, for an archive, a folder below
// that may not be read is an error, else it is left out.
func (p *place) walk(recursive, wholly bool, visit func(*place, fs.FileInfo) error) error {
	folder, err := p.root.Open(p.name)
	if err != nil {
		return err
	}
	names, err := folder.Readdirnames(-1)
	folder.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		one := &place{p.root, path.Join(p.name, name), path.Join(p.full, name)}
		if wholly && (one.full == "/proc" || one.full == "/sys") {
			continue // of the kernel, and not files to be kept
		}
		info, err := p.root.Lstat(one.name)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err == nil {
			err = visit(one, info)
		}
		if err == nil && recursive && info.IsDir() {
			err = one.walk(true, wholly, visit)
			if !wholly && errors.Is(err, fs.ErrPermission) {
				continue
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func pathInvalid(name, sentence string) *mesherr.Error {
	return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_PATH_INVALID,
		strings.ToValidUTF8(name, "?")+" "+sentence, "path", strings.ToValidUTF8(name, "?"))
}

// fileError is an error of the operating system about a path; nil for nil.
func fileError(name string, err error) error {
	var known *mesherr.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC):
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_DISK_FULL, "no space is left")
	case errors.Is(err, fs.ErrNotExist):
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_FILE_NOT_FOUND,
			"the file does not exist", "path", strings.ToValidUTF8(name, "?"))
	case errors.Is(err, fs.ErrPermission):
		return mesherr.New(errorsv1.ErrorReason_ERROR_REASON_SANDBOX_FILE_DENIED,
			"the sandbox's user may not do this", "path", strings.ToValidUTF8(name, "?"), "user", boxUser)
	default:
		return pathInvalid(name, "cannot be used: "+err.Error())
	}
}
