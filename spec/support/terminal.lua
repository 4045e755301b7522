--- terminal: runs a command on a pseudo-terminal of its own, as a person at the keyboard would.
--
--   local t = terminal.open {"build/argand", "script.lua"}
--   t:send "1 + 1\n"; t:expect "2"; t:send(terminal.CTRL_C); t:close()   -- exit code
local ffi = require "ffi"
local core = require "argand.core"

ffi.cdef [[
int forkpty(int *master, char *name, const void *termios, const void *winsize);
int execv(const char *path, char *const argv[]);
void _exit(int status);
struct argand_spec_pollfd {int fd; short events, revents;};
int poll(struct argand_spec_pollfd *fds, unsigned long num_fds, int timeout_ms);
intptr_t read(int fd, void *buffer, size_t len);
intptr_t write(int fd, const void *buffer, size_t len);
int close(int fd);
int kill(int pid, int signal_number);
int waitpid(int pid, int *status, int options);
intptr_t readlink(const char *path, char *buffer, size_t len);
]]
-- glibc has had forkpty in libc itself since 2.34.
local has_forkpty, forkpty = pcall(function() return ffi.C.forkpty end)
if not has_forkpty then forkpty = ffi.load("util").forkpty end

local M = {CTRL_C = "\3", CTRL_D = "\4"}

local POLLIN, SIGKILL, CHUNK_BYTES = 1, 9, 4096

local Terminal = {}
Terminal.__index = Terminal

--- The command that runs this spec.
function M.this_command()
  local buffer = ffi.new "char[4096]"
  return ffi.string(buffer, ffi.C.readlink("/proc/self/exe", buffer, 4095))
end

--- Starts args[1] with args as its arguments.
function M.open(args)
  local argv = ffi.new("const char *[?]", #args + 1)
  for i, text in ipairs(args) do argv[i - 1] = text end
  argv[#args] = nil
  local master = ffi.new "int[1]"
  local path, raw_argv = args[1], ffi.cast("char *const *", argv)
  local pid = forkpty(master, nil, nil, nil)
  if pid == 0 then
    ffi.C.execv(path, raw_argv)
    ffi.C._exit(127)
  end
  assert(pid > 0, "forkpty failed")
  return setmetatable({pid = pid, fd = master[0], text = "", from = 1, buffer = ffi.new("char[?]", CHUNK_BYTES)}, Terminal)
end

--- Whether this system gives pseudo-terminals (a bare chroot without /dev/pts does not).
function M.is_available()
  local ok, t = pcall(M.open, {"/bin/true"})
  if ok then t:close() end
  return ok
end

function Terminal:send(text)
  assert(ffi.C.write(self.fd, text, #text) == #text)
end

-- Reads what has come within seconds; false when nothing came or the other side has closed.
function Terminal:receive(seconds)
  local fds = ffi.new "struct argand_spec_pollfd[1]"
  fds[0].fd, fds[0].events = self.fd, POLLIN
  if ffi.C.poll(fds, 1, math.max(0, math.ceil(seconds * 1000))) <= 0 then return false end
  local len = tonumber(ffi.C.read(self.fd, self.buffer, CHUNK_BYTES))
  if len <= 0 then return false end
  self.text = self.text .. ffi.string(self.buffer, len)
  return true
end

--- Waits until a line matches the pattern after what was expected before; returns its captures and the seconds
--- that took are in t.waited.
function Terminal:expect(pattern, seconds)
  local start = core.now()
  local deadline = start + (seconds or 20)
  while true do
    local first, last = self.text:find(pattern, self.from)
    if first then
      self.waited = core.now() - start
      local captures = {self.text:match(pattern, self.from)}
      self.from = last + 1
      return unpack(captures)
    end
    if not self:receive(deadline - core.now()) then
      local rest = self.text:sub(self.from)
      self:kill()
      error(("expected %q, got %q"):format(pattern, rest), 2)
    end
  end
end

--- Reads until the other side closes or the seconds are over; returns all that was ever written.
function Terminal:drain(seconds)
  local deadline = core.now() + (seconds or 20)
  while self:receive(deadline - core.now()) do end
  return self.text
end

function Terminal:kill()
  if self.pid then ffi.C.kill(self.pid, SIGKILL) end
  self:close()
end

--- Waits for the end of the process; returns its exit code, or minus the signal that ended it.
function Terminal:close()
  if not self.pid then return end
  self:drain()
  local status = ffi.new "int[1]"
  ffi.C.waitpid(self.pid, status, 0)
  ffi.C.close(self.fd)
  self.pid = nil
  local signal_number = status[0] % 128
  return signal_number == 0 and math.floor(status[0] / 256) % 256 or -signal_number
end

return M
