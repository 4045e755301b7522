--- tcp_proxy: a TCP connection with a fault in it, in the loop of job.lua: bytes pass until told to damage, cut or stop them.
--
--   local proxy = tcp_proxy.new(port)   -- ranks dial proxy.port instead
--   proxy.fault = "flip"                -- with the next bytes that the dialling side sends
-- Faults: "flip" one bit, "truncate" (half of them, then the end), "reset" (RST to both), "stall" (nothing passes any more).
local bit = require "bit"
local ffi = require "ffi"
local core = require "argand.core"
local job = require "support.job"
local process = core.process

ffi.cdef [[
int accept4(int fd, void *address, unsigned *len, int flags);
int connect(int fd, const void *address, unsigned len);
int shutdown(int fd, int how);
intptr_t send(int fd, const void *bytes, size_t len, int flags);
]]
local AF_INET, SOL_SOCKET, SO_LINGER, SHUT_WRITE = 2, 1, 13, 1
local NONBLOCK_CLOEXEC, MSG_NOSIGNAL = 0x80800, 0x4000

local M = {}
local Proxy = {}
Proxy.__index = Proxy

--- A connection to a port of this host; writes to it do not wait.
function M.dial(port)
  local fd = ffi.C.socket(AF_INET, job.TCP_SOCKET, 0)
  assert(fd >= 0, "no socket")
  local address, len = job.loopback(port)
  ffi.C.connect(fd, address, len) -- under way: EINPROGRESS
  process.poll({}, {fd}, 2)
  return fd
end

--- Closes without goodbye: the other side gets an RST.
function M.reset(fd)
  ffi.C.setsockopt(fd, SOL_SOCKET, SO_LINGER, ffi.new("int[2]", 1, 0), 8)
  process.close(fd)
end

local function drop(link, key)
  local fd = link[key]
  if not fd then return end
  job.on_readable(fd, nil)
  link[key] = nil
  return fd
end

--- Sends what the other side takes now; how many bytes, -1 when it is gone.
function M.send(fd, bytes) return tonumber(ffi.C.send(fd, bytes, #bytes, MSG_NOSIGNAL)) end

-- Control messages are small: all is taken, or the side is gone.
local function pass(link, key, bytes)
  if link[key] then M.send(link[key], bytes) end
end

local faults = {}

function faults.flip(_, link, bytes)
  local at = math.floor(#bytes / 2) + 1
  pass(link, "back", bytes:sub(1, at - 1) .. string.char(bit.bxor(bytes:byte(at), 0x10)) .. bytes:sub(at + 1))
end

function faults.truncate(_, link, bytes)
  pass(link, "back", bytes:sub(1, math.floor(#bytes / 2)))
  for _, key in ipairs {"front", "back"} do
    ffi.C.shutdown(link[key], SHUT_WRITE)
    process.close(drop(link, key))
  end
end

function faults.reset(_, link)
  for _, key in ipairs {"front", "back"} do M.reset(drop(link, key)) end
end

function faults.stall(proxy) proxy.is_stalled = true end

local function read_side(proxy, link, from, to)
  local bytes = process.read(link[from])
  if bytes == false then
    process.close(drop(link, from))
    local other = not proxy.is_stalled and drop(link, to)
    if other then process.close(other) end
  elseif bytes and not proxy.is_stalled then
    local fault = from == "front" and proxy.fault
    if from == "front" then proxy.recorded[#proxy.recorded + 1] = bytes end
    if not fault then return pass(link, to, bytes) end
    proxy.fault, proxy.happened = nil, core.now()
    faults[fault](proxy, link, bytes)
  end
end

local function accept(proxy)
  local fd = ffi.C.accept4(proxy.listening, nil, nil, NONBLOCK_CLOEXEC)
  if fd < 0 then return end
  local link = {front = fd, back = M.dial(proxy.target)}
  proxy.links[#proxy.links + 1] = link
  job.on_readable(link.front, function() read_side(proxy, link, "front", "back") end)
  job.on_readable(link.back, function() read_side(proxy, link, "back", "front") end)
end

--- A proxy for connections to the port. Fields: port; recorded, a list of what was sent; happened, when the fault did.
function M.new(target)
  local listening, port = job.listen()
  local proxy = setmetatable({listening = listening, port = port, target = target, links = {}, recorded = {}}, Proxy)
  job.on_readable(listening, function() accept(proxy) end)
  return proxy
end

function Proxy:close()
  job.on_readable(self.listening, nil)
  process.close(self.listening)
  for _, link in ipairs(self.links) do
    for _, key in ipairs {"front", "back"} do
      local fd = drop(link, key)
      if fd then process.close(fd) end
    end
  end
end

--- The loopback ports at which a process listens.
function M.ports_of(pid)
  local inodes, ports = {}, {}
  local pipe = io.popen(("ls -l /proc/%d/fd 2>/dev/null"):format(pid))
  for line in pipe:lines() do
    local inode = line:match "socket:%[(%d+)%]"
    if inode then inodes[inode] = true end
  end
  pipe:close()
  for line in io.lines "/proc/net/tcp" do
    local port, inode = line:match "^%s*%d+: %x+:(%x+) %x+:0000 0A %S+ %S+ %S+%s+%d+%s+%d+ (%d+)"
    if port and inodes[inode] then ports[#ports + 1] = tonumber(port, 16) end
  end
  return ports
end

return M
