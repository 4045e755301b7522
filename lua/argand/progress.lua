--- Progress of a loop on one line of the terminal: percentage, bar, rate, time left, on stderr.
--
--   for x, y in progress(loader:batches(), {total = #loader, label = "epoch 1"}) do ... end
--
-- On a terminal the line is redrawn at most ten times a second. While it stands, `print` clears it first, so
-- that printed lines stay whole. Anywhere else plain lines are written: one every ten seconds and one at the
-- end.

local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"

local STDERR = 2
local REDRAW_SECONDS = 0.1
local LINE_SECONDS = 10
local BAR_COLUMNS = 30

---@class argand.Progress
local Progress = class "Progress"

local standing         -- the bar whose line is on the terminal, nil when there is none
local original_print   -- what `print` was before a bar took its place, nil when none has

-- Makes room for other lines; the bar comes back with its next drawing.
local function clear_line()
  if standing then
    io.stderr:write("\r\27[K")
    standing = nil
  end
end

local function careful_print(...)
  clear_line()
  original_print(...)
  io.stdout:flush()
end

local function guard_print()
  if original_print then return end
  original_print = print
  rawset(_G, "print", careful_print)
end

local function restore_print()
  if original_print and rawget(_G, "print") == careful_print then
    rawset(_G, "print", original_print)
    original_print = nil
  end
end

local function time_text(seconds)
  seconds = math.floor(seconds + 0.5)
  if seconds >= 3600 then
    return ("%d:%02d:%02d"):format(math.floor(seconds / 3600), math.floor(seconds / 60) % 60, seconds % 60)
  end
  return ("%02d:%02d"):format(math.floor(seconds / 60), seconds % 60)
end

local function rate_text(rate)
  if rate >= 1000 then return ("%.0f/s"):format(rate) end
  if rate >= 1 or rate == 0 then return ("%.1f/s"):format(rate) end
  return ("%.1f s each"):format(1 / rate)
end

--- Starts the clock.
---@param opts? {total: integer, label: string, quiet: boolean} quiet shows nothing, for ranks but the first
function Progress:init(opts)
  local known = { total = options.optional.number, label = "", quiet = false }
  local read = options.read("progress", opts, known)
  self.total, self.label, self.quiet = read.total, read.label, read.quiet
  self.done, self.note = 0, ""
  self.is_terminal = core.isatty(STDERR)
  self.started = core.now()
  self.shown_at = self.is_terminal and -math.huge or self.started
end

--- Returns the line as it would be shown now.
---@return string
function Progress:text()
  local elapsed = core.now() - self.started
  local rate = elapsed > 0 and self.done / elapsed or 0
  local label = self.label ~= "" and self.label .. " " or ""
  local note = self.note ~= "" and "  " .. self.note or ""
  if not self.total then
    return ("%s%d  %s  %s%s"):format(label, self.done, rate_text(rate), time_text(elapsed), note)
  end
  local part = self.total > 0 and math.min(self.done / self.total, 1) or 1
  local left = rate > 0 and time_text((self.total - self.done) / rate) .. " left" or "--:-- left"
  if self.done >= self.total then left = time_text(elapsed) end
  local bar = ""
  if self.is_terminal then
    local filled = math.floor(part * BAR_COLUMNS + 0.5)
    bar = " [" .. ("="):rep(filled) .. (" "):rep(BAR_COLUMNS - filled) .. "]"
  end
  return ("%s%3.0f%%%s %d/%d  %s  %s%s"):format(label, math.floor(part * 100), bar, self.done, self.total,
    rate_text(rate), left, note)
end

--- Shows the line now, whenever it was shown last.
function Progress:draw()
  local text = self:text()
  self.drawn = self.done
  if self.is_terminal then
    guard_print()
    local width = (core.term_width() or 80) - 1
    io.stdout:flush()
    io.stderr:write("\r", text:sub(1, width), "\27[K")
    standing = self
  else
    io.stderr:write(text, "\n")
  end
  io.stderr:flush()
end

--- Counts steps and shows them when it is time to.
---@param count? integer default 1
---@param note? string shown at the end of the line, e.g. "loss 0.31"
function Progress:update(count, note)
  self.done = self.done + (count or 1)
  if note then self.note = note end
  if self.quiet then return end
  local now = core.now()
  if now - self.shown_at < (self.is_terminal and REDRAW_SECONDS or LINE_SECONDS) then return end
  self.shown_at = now
  self:draw()
end

--- Shows the last state and ends the line.
function Progress:finish()
  if self.finished then return end
  self.finished = true
  if self.quiet then return end
  if self.is_terminal or self.drawn ~= self.done then self:draw() end
  if self.is_terminal then
    io.stderr:write("\n")
    io.stderr:flush()
    standing = nil
    restore_print()
  end
end

local M = { Progress = Progress, clear_line = clear_line }

--- Loops over an iterator function, or over 1..n for a number n.
---@param source integer|fun(): ...
---@param opts? {total: integer, label: string, quiet: boolean} total of a number is that number
---@return fun(): ... iterator, argand.Progress bar
local function iterate(source, opts)
  if opts ~= nil and type(opts) ~= "table" then
    core.raise("option", "progress", "options: expected a table, got " .. type(opts))
  end
  if type(source) == "number" then
    local last, position = source, 0
    opts = opts or {}
    if opts.total == nil then
      local with_total = { total = last }
      for name, value in pairs(opts) do with_total[name] = value end
      opts = with_total
    end
    source = function()
      position = position + 1
      if position <= last then return position end
    end
  elseif type(source) ~= "function" then
    local message = "source: expected an iterator function or a number, got " .. type(source)
    core.raise("argument", "progress", message)
  end
  local bar = Progress(opts)
  local is_first = true
  local function pass(first, ...)
    if first == nil then
      bar:finish()
      return nil
    end
    return first, ...
  end
  return function()
    if not is_first then bar:update() end
    is_first = false
    return pass(source())
  end, bar
end

return setmetatable(M, { __call = function(_, source, opts) return iterate(source, opts) end })
