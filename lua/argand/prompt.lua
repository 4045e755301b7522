--- prompt: reads Lua from the terminal, runs it and prints the values. `argand` without arguments.
--
-- An input that is incomplete goes on in the next line. Ctrl-C drops the line that is being typed, or stops what
-- runs; Ctrl-D ends.

local ag = require "argand"
local format = require "argand.format"

local M = {}

local CHUNK_NAME = "=prompt"
local PROMPT, CONTINUATION = "> ", ">> "

-- Where the command cannot get a loop out of its machine code (lua/bin/interrupt_traces.h), what is typed here
-- stays with the interpreter, so that Ctrl-C ends it all the same.
local must_interpret = not (jit.arch == "x64" and jit.os == "Linux")

local library_path = debug.getinfo(1, "S").source:match "^@(.*)prompt%.lua$"

local function is_incomplete(err) return err:find "'<eof>'$" ~= nil end

-- Returns a chunk and which of its results is the first to show; nil and a message for what is no Lua.
-- An expression is tried first. The nil in front keeps it from being a tail call, which would hide the line in errors.
local function compile(text)
  local chunk, first = loadstring("return nil, " .. text, CHUNK_NAME), 2
  if not chunk then
    local err
    chunk, err = loadstring(text, CHUNK_NAME)
    if not chunk then return nil, err end
    first = 1
  end
  if must_interpret then jit.off(chunk, true) end
  return chunk, first
end

-- As compile, but nil alone at the end of the input.
local function read_chunk()
  local text
  while true do
    io.stdout:write(text and CONTINUATION or PROMPT)
    io.stdout:flush()
    local line, err = io.read "*l"
    if not line then return nil, err end
    text = text and text .. "\n" .. line or line:gsub("^=", "", 1)
    local chunk, result = compile(text)
    if chunk or not is_incomplete(result) then return chunk, result end
  end
end

local function is_user_frame(info)
  if info.currentline <= 0 then return false end
  return not (library_path and info.source:sub(2, #library_path + 1) == library_path)
end

-- The message, then the lines of the user's own code that led to it when there are more than one.
local function describe(err)
  local lines = {}
  for level = 2, 200 do
    local info = debug.getinfo(level, "Sln")
    if not info then break end
    if is_user_frame(info) then
      lines[#lines + 1] = ("  %s:%d: in %s"):format(info.short_src, info.currentline,
        info.what == "main" and "main chunk" or info.name and "'" .. info.name .. "'" or "a function")
    end
  end
  local is_interrupt = type(err) == "table" and err.code == "interrupted"
  local text = is_interrupt and "interrupted" or tostring(err)
  if #lines < 2 then return text end
  return text .. "\n" .. table.concat(lines, "\n")
end

local function show(first, ok, ...)
  if not ok then
    local progress = package.loaded["argand.progress"]
    if progress then progress.clear_line() end
    io.stdout:write((...), "\n")
    return
  end
  for position = first, select("#", ...) do io.stdout:write(format.value((select(position, ...))), "\n") end
end

-- Reads and runs one input; false at the end.
local function step()
  local chunk, result = read_chunk()
  if chunk then
    show(result, xpcall(chunk, describe))
  elseif result then
    io.stdout:write(result, "\n")
  else
    return false
  end
  return true
end

local function interact()
  while true do
    local ok, goes_on = pcall(step)
    if ok and not goes_on then return end
    if not ok then -- Ctrl-C while a line was being typed, or an error that escaped while values were shown
      local is_interrupt = type(goes_on) == "table" and goes_on.code == "interrupted"
      io.stdout:write(is_interrupt and "" or tostring(goes_on), "\n")
    end
  end
end

--- Runs the prompt until the end of the input; returns the exit code.
---@return integer
function M.run()
  rawset(_G, "ag", ag)
  io.stdout:write("argand ", ag._VERSION, ", Ctrl-D ends\n")
  -- Once more around: an interrupt may come between two steps.
  while not pcall(interact) do io.stdout:write "\n" end
  io.stdout:write "\n"
  return 0
end

return M
