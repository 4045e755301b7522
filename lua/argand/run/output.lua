--- output: what ranks write, as whole lines that start with "[rank] ", and in files of their own.
local core = require "argand.core"
local process = core.process

local STREAMS = {out = 1, err = 2}
local MAX_LINE_BYTES = 2 ^ 26 -- a longer one is cut

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

--- Options: has_prefix; log_dir, made when it is not there.
function Output.new(opts)
  local self = setmetatable({has_prefix = opts.has_prefix, log_dir = opts.log_dir, lines = {}, files = {}}, Output)
  if self.log_dir then make_folders(self.log_dir) end
  return self
end

-- A closed pipe behind us is told by is_broken: then the job ends.
function Output:emit(stream, text)
  local written = process.write(STREAMS[stream], text)
  if not written then self.is_broken = true end
  while written and written < #text do -- the descriptor does not wait; somebody else has set it so
    process.poll({}, {STREAMS[stream]}, 1)
    text = text:sub(written + 1)
    written = process.write(STREAMS[stream], text)
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
  if file then file:write(bytes) end
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
