package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/gymmesh/gymmesh/clients/go/gen/gymmesh/sandbox/v1"

	"github.com/gymmesh/gymmesh/clients/go/mesherr"
)

const (
	mostPaths   = 1024
	fileTime    = time.Minute // for a call about files
	archiveTime = time.Minute // between two pieces
)

// filesOf finds a sandbox for a call about files, and says what the call may do.
func (s *service) filesOf(id string, secret []byte, what need, name string) (*sandbox, *order, error) {
	found, shown, err := s.find(id, secret, what)
	if err != nil {
		return nil, nil, err
	}
	return found, &order{
		Call: name, Workdir: found.workdir, Folder: shown.scope.GetFolder(), MaxSize: mostArchive,
	}, nil
}

// do has a call about files done, in a bounded time.
func (b *sandbox) do(
	ctx context.Context, asked *order, request, into proto.Message, took ...func() error,
) error {
	ctx, cancel := context.WithTimeout(ctx, fileTime)
	defer cancel()
	err := b.box.call(ctx, asked, request, into, took...)
	if errors.Is(err, errBroken) || err != nil && b.box.isGone() {
		return lost(b.id)
	}
	return err
}

func (s *service) ReadFiles(
	request *sandboxv1.ReadFilesRequest, stream grpc.ServerStreamingServer[sandboxv1.ReadFilesResponse],
) error {
	found, asked, err := s.filesOf(request.GetSandboxId(), request.GetLease(), needReading, "ReadFiles")
	if err != nil {
		return err
	}
	if len(request.GetPaths()) == 0 {
		return missing("paths")
	}
	if len(request.GetPaths()) > mostPaths {
		return invalid("paths", "are more than "+strconv.Itoa(mostPaths))
	}
	if !isBoxUser(request.GetUser()) {
		return unsupported("user")
	}
	piece := &sandboxv1.ReadFilesResponse{}
	return found.do(stream.Context(), asked, withoutLease(request), piece, func() error { return stream.Send(piece) })
}

func (s *service) WriteFiles(
	ctx context.Context, request *sandboxv1.WriteFilesRequest,
) (*sandboxv1.WriteFilesResponse, error) {
	found, asked, err := s.filesOf(request.GetSandboxId(), request.GetLease(), needFiles, "WriteFiles")
	if err != nil {
		return nil, err
	}
	if len(request.GetFiles()) == 0 {
		return nil, missing("files")
	}
	if !isBoxUser(request.GetUser()) {
		return nil, unsupported("user")
	}
	if err := found.do(ctx, asked, withoutLease(request), nil); err != nil {
		return nil, err
	}
	return &sandboxv1.WriteFilesResponse{}, nil
}

func (s *service) ListFiles(
	ctx context.Context, request *sandboxv1.ListFilesRequest,
) (*sandboxv1.ListFilesResponse, error) {
	found, asked, err := s.filesOf(request.GetSandboxId(), request.GetLease(), needReading, "ListFiles")
	if err != nil {
		return nil, err
	}
	if request.GetPageSize() < 0 {
		return nil, invalid("page_size", "must not be negative")
	}
	if !isBoxUser(request.GetUser()) {
		return nil, unsupported("user")
	}
	answer := &sandboxv1.ListFilesResponse{}
	if err := found.do(ctx, asked, withoutLease(request), answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *service) ReadArchive(
	request *sandboxv1.ReadArchiveRequest, stream grpc.ServerStreamingServer[sandboxv1.ReadArchiveResponse],
) error {
	found, asked, err := s.filesOf(request.GetSandboxId(), request.GetLease(), needReading, "ReadArchive")
	if err != nil {
		return err
	}
	if len(request.GetPath()) == 0 {
		return missing("path")
	}
	if !isBoxUser(request.GetUser()) {
		return unsupported("user")
	}
	piece := &sandboxv1.ReadArchiveResponse{}
	return found.do(stream.Context(), asked, withoutLease(request), piece, func() error { return stream.Send(piece) })
}

// archive is one that is received piece by piece.
type archive struct {
	mu     sync.Mutex
	data   []byte
	drop   *time.Timer
	answer *sandboxv1.WriteArchiveResponse // once it was unpacked, or could not be
	err    error
}

func (s *service) WriteArchive(
	ctx context.Context, request *sandboxv1.WriteArchiveRequest,
) (*sandboxv1.WriteArchiveResponse, error) {
	found, asked, err := s.filesOf(request.GetSandboxId(), request.GetLease(), needFiles, "WriteArchive")
	if err != nil {
		return nil, err
	}
	if request.GetRequestId() == "" {
		return nil, missing("request_id")
	}
	if len(request.GetPath()) == 0 {
		return nil, missing("path")
	}
	if !isBoxUser(request.GetUser()) {
		return nil, unsupported("user")
	}
	one := found.archive(request.GetRequestId())
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.answer != nil || one.err != nil {
		return one.answer, one.err
	}
	received, offset := uint64(len(one.data)), request.GetOffset()
	if offset > received {
		return nil, invalid("offset", "is beyond the bytes received so far")
	}
	if end := offset + uint64(len(request.GetContent())); end > mostArchive {
		return nil, invalid("content", "makes the archive larger than it may be")
	} else if end > received {
		one.data = append(one.data, request.GetContent()[received-offset:]...)
	}
	answer := &sandboxv1.WriteArchiveResponse{Received: uint64(len(one.data))}
	if !request.GetLast() {
		one.drop.Reset(archiveTime)
		return answer, nil
	}
	whole := &sandboxv1.WriteArchiveRequest{Path: request.GetPath(), Format: request.GetFormat(), Content: one.data}
	one.err = found.do(context.WithoutCancel(ctx), asked, whole, nil)
	one.data = nil
	one.drop.Reset(repeatTime)
	if one.err != nil {
		return nil, one.err
	}
	one.answer = answer
	return answer, nil
}

func (b *sandbox) archive(id string) *archive {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.archives[id]
	if found == nil {
		found = &archive{drop: time.AfterFunc(archiveTime, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.archives, id)
		})}
		b.archives[id] = found
	}
	return found
}

// What follows runs in the sandbox.

// unpack unpacks an archive, or nothing of it.
func (f *files) unpack(request *sandboxv1.WriteArchiveRequest, most int64) error {
	at, err := f.locate(request.GetPath(), false)
	if err != nil {
		return err
	}
	defer at.root.Close()
	name := string(request.GetPath())
	made, err := at.makeFolder()
	if err != nil {
		return fileError(name, err)
	}
	folder, err := at.root.OpenRoot(at.name)
	if err != nil {
		return fileError(name, err)
	}
	defer folder.Close()
	if err := check(request, folder, most); err != nil {
		for _, one := range slices.Backward(made) {
			at.root.Remove(one)
		}
		return err
	}
	return eachMember(request, func(header *tar.Header, content io.Reader) error {
		return fileError(header.Name, unpackMember(folder, header, content))
	})
}

// makeFolder makes a folder and those above it; it says which were missing.
func (p *place) makeFolder() ([]string, error) {
	var made []string
	name := ""
	for _, part := range strings.Split(p.name, "/") {
		name = path.Join(name, part)
		if _, err := p.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			made = append(made, name)
		}
	}
	return made, p.root.MkdirAll(p.name, 0o755)
}

// check refuses an archive with a member that must not be unpacked.
func check(request *sandboxv1.WriteArchiveRequest, folder *os.Root, most int64) error {
	links := make(map[string]bool)
	return eachMember(request, func(header *tar.Header, content io.Reader) error {
		name := path.Clean(header.Name)
		if !filepath.IsLocal(name) {
			return pathInvalid(header.Name, "lies outside of the folder")
		}
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			info, err := folder.Lstat(above)
			if links[above] || err == nil && info.Mode()&fs.ModeSymlink != 0 {
				if !leadsInside(folder, above) {
					return pathInvalid(header.Name, "leads through a link")
				}
			}
		}
		switch header.Typeflag {
		case tar.TypeReg, tar.TypeDir:
		case tar.TypeSymlink:
			links[name] = true
		case tar.TypeLink:
			if !filepath.IsLocal(path.Clean(header.Linkname)) || leadsThrough(links, path.Clean(header.Linkname)) {
				return pathInvalid(header.Name, "is a link to what lies outside of the folder")
			}
		default:
			return pathInvalid(header.Name, "is neither a file, a folder nor a link")
		}
		if most -= header.Size; most < 0 {
			return invalid("content", "unpacks to more than it may")
		}
		return nil
	})
}

// leadsInside says of a link that is there whether it leads to something in the folder.
func leadsInside(folder *os.Root, name string) bool {
	_, err := folder.Stat(name)
	return err == nil
}

func leadsThrough(links map[string]bool, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if links[name] {
			return true
		}
	}
	return false
}

func unpackMember(folder *os.Root, header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	mode := fs.FileMode(header.Mode & 0o777)
	if name == "." {
		return nil
	}
	if err := folder.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeDir {
		if err := folder.MkdirAll(name, 0o755); err != nil {
			return err
		}
		return folder.Chmod(name, mode|0o700)
	}
	if info, err := folder.Lstat(name); err == nil {
		if info.IsDir() {
			return errNotPlain
		}
		if err := folder.Remove(name); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		return folder.Symlink(header.Linkname, name)
	case tar.TypeLink:
		return folder.Link(path.Clean(header.Linkname), name)
	}
	file, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err == nil {
		err = file.Chmod(mode)
	}
	if late := file.Close(); err == nil {
		err = late
	}
	return err
}

// eachMember visits the members of an archive.
func eachMember(request *sandboxv1.WriteArchiveRequest, visit func(*tar.Header, io.Reader) error) error {
	var data io.Reader = bytes.NewReader(request.GetContent())
	if request.GetFormat() == sandboxv1.ArchiveFormat_ARCHIVE_FORMAT_TAR_GZIP {
		unzipped, err := gzip.NewReader(data)
		if err != nil {
			return pathInvalid(string(request.GetPath()), "was sent bytes that are not gzip")
		}
		data = unzipped
	}
	reader := tar.NewReader(data)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = visit(header, reader)
		}
		var known *mesherr.Error
		if errors.As(err, &known) {
			return known
		}
		if err == nil {
			_, err = io.Copy(io.Discard, reader)
		}
		if err != nil {
			return pathInvalid(string(request.GetPath()), "was sent bytes that are not an archive")
		}
	}
}

// pack packs a folder or file.
func (f *files) pack(request *sandboxv1.ReadArchiveRequest, most int64, send func(proto.Message) error) error {
	at, err := f.locate(request.GetPath(), false)
	if err != nil {
		return err
	}
	defer at.root.Close()
	info, err := at.root.Lstat(at.name)
	if err != nil {
		return fileError(string(request.GetPath()), err)
	}
	size := info.Size()
	if info.IsDir() {
		if size, err = at.size(most); err != nil {
			return fileError(string(request.GetPath()), err)
		}
	}
	if size > most {
		return invalid("path", "holds more than max_archive_bytes, "+strconv.FormatInt(most, 10))
	}
	out := &pieces{send: send}
	var to io.Writer = out
	var zipped *gzip.Writer
	if request.GetFormat() == sandboxv1.ArchiveFormat_ARCHIVE_FORMAT_TAR_GZIP {
		zipped = gzip.NewWriter(out)
		to = zipped
	}
	writer := tar.NewWriter(to)
	if info.IsDir() {
		err = at.walk(true, true, func(one *place, info fs.FileInfo) error {
			return one.packInto(writer, strings.TrimPrefix(one.full[len(at.full):], "/"), info)
		})
	} else {
		err = at.packInto(writer, path.Base(string(request.GetPath())), info)
	}
	if err == nil {
		err = writer.Close()
	}
	if err == nil && zipped != nil {
		err = zipped.Close()
	}
	if err != nil {
		return fileError(string(request.GetPath()), err)
	}
	return out.flush(true)
}

// size sums up the files of a folder, as far as more than most.
func (p *place) size(most int64) (int64, error) {
	size := int64(0)
	err := p.walk(true, true, func(_ *place, info fs.FileInfo) error {
		if info.Mode().IsRegular() {
			size += info.Size()
		}
		if size > most {
			return invalid("path", "holds more than max_archive_bytes, "+strconv.FormatInt(most, 10))
		}
		return nil
	})
	return size, err
}

// packInto packs one file; what is neither file, folder nor link is left out.
func (p *place) packInto(writer *tar.Writer, name string, info fs.FileInfo) error {
	header := &tar.Header{
		Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(p.name)
		if err != nil {
			return err
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, target
	case info.Mode().IsRegular():
		file, opened, err := p.open()
		if err != nil {
			return err
		}
		defer file.Close()
		header.Typeflag, header.Size = tar.TypeReg, int64(opened.GetSize())
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err = io.CopyN(writer, file, header.Size) // one that grows meanwhile is cut
		return err
	default:
		return nil
	}
	return writer.WriteHeader(header)
}

// pieces sends what is written to it.
type pieces struct {
	send func(proto.Message) error
	data []byte
}

func (p *pieces) Write(data []byte) (int, error) {
	p.data = append(p.data, data...)
	for len(p.data) > pieceBytes {
		if err := p.send(&sandboxv1.ReadArchiveResponse{Content: p.data[:pieceBytes]}); err != nil {
			return 0, err
		}
		p.data = slices.Clone(p.data[pieceBytes:])
	}
	return len(data), nil
}

func (p *pieces) flush(last bool) error {
	return p.send(&sandboxv1.ReadArchiveResponse{Content: p.data, Last: last})
}
