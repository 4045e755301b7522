--- loop: waits for descriptors, children and signals at once, and calls who is concerned.
local core = require "argand.core"
local process = core.process

local SIGCHLD = 17 -- on the architectures that LuaJIT runs on, MIPS excepted

local Loop = {}
Loop.__index = Loop

--- Takes over the signals of this process. on_signal(number) is called for SIGINT, SIGTERM and SIGHUP.
function Loop.new(on_signal)
  local fd, err = process.signal_fd()
  if not fd then core.raise("state", "run", err) end
  return setmetatable({signal_fd = fd, on_signal = on_signal, readers = {}, writers = {}, children = {}}, Loop)
end

--- Calls fn() whenever fd can be read or is at its end; nil ends that.
function Loop:read(fd, fn) self.readers[fd] = fn end

--- Calls fn() whenever fd can be written to; nil ends that.
function Loop:write(fd, fn) self.writers[fd] = fn end

--- Calls fn(exit code or nil, signal or nil) once, when the child has ended.
function Loop:child(pid, fn) self.children[pid] = fn end

--- Starts the guard of this process; the descriptor to tell it of ranks. A private file is removed by it when nobody else did.
function Loop:guard(file)
  local pid, fd = process.guard(file)
  if not pid then core.raise("state", "run", fd) end
  self:child(pid, function() end)
  return fd
end

-- Ends of children that nobody asked for are those of adopted orphans.
function Loop:reap()
  while true do
    local pid, code, signal = process.wait()
    if not pid then return pid end
    local fn = self.children[pid]
    self.children[pid] = nil
    if fn then fn(code, signal) end
  end
end

-- The end of children waits for the next step.
function Loop:take_signals()
  for _, number in ipairs(process.read_signals(self.signal_fd)) do
    if number == SIGCHLD then self.has_child_ended = true else self.on_signal(number) end
  end
end

--- Waits for at most `seconds` until fd can be written to, or for a signal, and deals with that one only. Whether it can.
function Loop:wait_for_room(fd, seconds)
  local has_room = false
  for _, ready in ipairs(process.poll({self.signal_fd}, {fd}, seconds)) do
    if ready == fd then has_room = true else self:take_signals() end
  end
  return has_room
end

--- Waits for at most `seconds` for something to happen, and deals with it.
function Loop:step(seconds)
  if self.has_child_ended then seconds = 0 end
  local read_fds, write_fds = {self.signal_fd}, {}
  for fd in pairs(self.readers) do read_fds[#read_fds + 1] = fd end
  for fd in pairs(self.writers) do write_fds[#write_fds + 1] = fd end
  for _, fd in ipairs(process.poll(read_fds, write_fds, seconds)) do
    if fd == self.signal_fd then
      self:take_signals()
    else
      if self.readers[fd] then self.readers[fd]() end
      if self.writers[fd] then self.writers[fd]() end
    end
  end
  if self.has_child_ended then
    self.has_child_ended = false
    self:reap()
  end
end

--- Ends the children that are left, except those somebody waits for: orphans that ranks left behind. Waits for at most
--- `seconds`.
function Loop:end_orphans(seconds)
  local own = process.self().pid
  local deadline = core.now() + seconds
  repeat
    local file = io.open(("/proc/%d/task/%d/children"):format(own, own))
    local text = file and file:read "*a" or ""
    if file then file:close() end
    local count = 0
    for word in text:gmatch "%d+" do
      local pid = tonumber(word)
      if not self.children[pid] then
        count = count + 1
        process.kill(pid, 9)
      end
    end
    self:reap()
    if count > 0 then process.poll({self.signal_fd}, nil, 0.02) end
  until count == 0 or core.now() > deadline
end

return Loop
