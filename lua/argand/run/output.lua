--- output: what ranks write, as whole lines that start with "[rank] ", and in files of their own.
local core = require "argand.core"
local process = core.process

local STREAMS = {out = 1, err = 2}
local STREAM_NAMES = {out = "standard output", err = "standard error"}
local MAX_LINE_BYTES = 2 ^ 26 -- a longer one is cut
local ROOM_BYTES = 4096 -- what a pipe that poll calls writable takes without waiting

local Output = {}
Output.__index = Output

local function make_folders(path)
  local from = 1
  while from do
    local slash = path:find("/", from + 1, true)
    local ok, err = process.make_folder(path:sub(1, slash and slash - 1 or #path))
    if not ok and not slash then core.raise("file", "run", err) end
    from = slash
  end
end

--- Options: has_prefix; log_dir, made when it is not there; wait_for_room(fd), which returns false when what a stream does not
-- take now is to be dropped; on_broken(stream's name, message), called once when one takes nothing any more.
function Output.new(opts)
  local self = setmetatable({has_prefix = opts.has_prefix, log_dir = opts.log_dir, lines = {}, files = {}, is_broken = {},
                             wait_for_room = opts.wait_for_room, on_broken = opts.on_broken}, Output)
  if self.log_dir then make_folders(self.log_dir) end
  return self
end

-- Who reads may be slow, or be gone. A write that waits would be deaf to signals, so only what there is room for is written.
function Output:emit(stream, text)
  local fd, from = STREAMS[stream], 1
  while from <= #text and not self.is_broken[stream] do
    if not self.wait_for_room(fd) then
      self.is_broken[stream] = true
      return
    end
    local written, err = process.write(fd, text:sub(from, from + ROOM_BYTES - 1))
    if not written then
      self.is_broken[stream] = true
      return self.on_broken(STREAM_NAMES[stream], err)
    end
    from = from + written
  end
end

function Output:log(name, stream, bytes)
  if not self.log_dir or type(name) ~= "number" then return end
  local file_name = ("%s/rank%d.%s"):format(self.log_dir, name, stream)
  local file = self.files[file_name]
  if file == nil then
    local err
    file, err = io.open(file_name, "w")
    if not file then self:say(("argand run: no log: %s"):format(err)) end
    if file then file:setvbuf "no" end
    self.files[file_name] = file or false
  end
  local ok, err = true, nil
  if file then ok, err = file:write(bytes) end
  if ok then return end
  self:say(("argand run: no more log: %s: %s"):format(file_name, err))
  file:close()
  self.files[file_name] = false
end

local function prefixed(name, text) return (text:gsub("[^\n]*\n", ("[%s] "):format(name):gsub("%%", "%%%%") .. "%0")) end

--- Takes bytes that rank `name` (or a host, by its name) wrote to stream "out" or "err"; writes the lines that are whole.
function Output:write(name, stream, bytes)
  self:log(name, stream, bytes)
  local key = stream .. name
  local line = self.lines[key]
  if not line then
    line = {name = name, stream = stream, num_bytes = 0}
    self.lines[key] = line
  end
  local last = bytes:match "^.*()\n"
  if last then
    local whole = table.concat(line) .. bytes:sub(1, last)
    for i = #line, 1, -1 do line[i] = nil end
    line.num_bytes = 0
    self:emit(stream, (self.has_prefix or type(name) ~= "number") and prefixed(name, whole) or whole)
    bytes = bytes:sub(last + 1)
  end
  if bytes ~= "" then line[#line + 1] = bytes end
  line.num_bytes = line.num_bytes + #bytes
  if line.num_bytes > MAX_LINE_BYTES then self:flush(name) end
end

--- Writes what `name` has begun and not ended, with an end of line.
function Output:flush(name)
  for stream in pairs(STREAMS) do
    local line = self.lines[stream .. name]
    if line and line.num_bytes > 0 then
      local text = table.concat(line) .. "\n"
      self.lines[stream .. name] = nil
      self:emit(stream, (self.has_prefix or type(name) ~= "number") and prefixed(name, text) or text)
    end
  end
end

function Output:flush_all()
  local names = {}
  for _, line in pairs(self.lines) do names[line.name] = true end
  for name in pairs(names) do self:flush(name) end
end

--- Writes a line of the launcher's own to stderr.
function Output:say(text) self:emit("err", text .. "\n") end

return Output
