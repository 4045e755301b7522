--- hostlist: names of hosts: Slurm's list syntax, `host:slots` lists and host files.
local core = require "argand.core"

local M = {}

local MAX_HOSTS = 65536

local function fail(code, message, hint)
  local _, err = pcall(core.raise, code, "hostlist", message, hint)
  return nil, err
end

-- The end of the item that starts at `from`: before the next comma outside of brackets.
local function item_end(text, from)
  local depth = 0
  for i = from, #text do
    local char = text:sub(i, i)
    if char == "[" then depth = depth + 1
    elseif char == "]" then depth = depth - 1
    elseif char == "," and depth <= 0 then return i - 1 end
  end
  return #text
end

-- Calls fn(item, position) for each item; what fn returns as a second value ends it.
local function each_item(text, fn)
  local from = 1
  while from <= #text + 1 do
    local last = item_end(text, from)
    local _, err = fn(text:sub(from, last), from)
    if err then return err end
    from = last + 2
  end
end

local function at(position, text) return ("position %d: %s"):format(position, text) end

-- The numbers of one part of a bracket, "7" or "010-012", as texts with their zeros.
local function expand_range(part, position, into)
  local first, last = part:match "^(%d+)%-(%d+)$"
  if not first then
    first = part:match "^%d+$"
    last = first
  end
  if not first then return at(position, ("expected a number or a range of two, got '%s'"):format(part)) end
  local low, high = tonumber(first), tonumber(last)
  if #first > 15 or #last > 15 then return at(position, "a number has too many digits") end
  if high < low then return at(position, ("the range %s ends before it starts"):format(part)) end
  if high - low >= MAX_HOSTS then return at(position, ("the range %s is too long"):format(part)) end
  local format = "%0" .. #first .. ".0f"
  for number = low, high do into[#into + 1] = format:format(number) end
end

local function expand_bracket(inside, position)
  local numbers = {}
  local err = each_item(inside, function(part, offset)
    return nil, expand_range(part, position + offset - 1, numbers)
  end)
  if not err and #numbers > MAX_HOSTS then err = at(position, "too many hosts") end
  if err then return nil, err end
  return numbers
end

-- All names of one item, the last bracket counting fastest.
local function expand_item(item, position, into)
  if item == "" then return at(position, "expected a host, got nothing") end
  local names, from = {""}, 1
  while from <= #item do
    local open = item:find("[%[%]]", from)
    local literal = item:sub(from, (open or #item + 1) - 1)
    local odd = literal:find "[^%w%._%-:%%@]"
    if odd then
      return at(position + from + odd - 2, ("'%s' cannot be in the name of a host"):format(literal:sub(odd, odd)))
    end
    local numbers = {""}
    if open then
      if item:sub(open, open) == "]" then return at(position + open - 1, "']' without '['") end
      local close = item:find("]", open, true)
      if not close then return at(position + open - 1, "'[' without ']'") end
      local list, err = expand_bracket(item:sub(open + 1, close - 1), position + open)
      if not list then return err end
      numbers = list
      from = close + 1
    else
      from = #item + 1
    end
    if #names * #numbers + #into > MAX_HOSTS then return at(position, "too many hosts") end
    local longer = {}
    for _, name in ipairs(names) do
      for _, number in ipairs(numbers) do longer[#longer + 1] = name .. literal .. number end
    end
    names = longer
  end
  for _, name in ipairs(names) do into[#into + 1] = name end
end

--- Expands a list such as "node[1-3,7],login" into its hosts, in order; duplicates stay.
---@param text string
---@return string[]|nil hosts
---@return table|nil err
function M.expand(text)
  local hosts = {}
  local err = each_item(text, function(item, position) return nil, expand_item(item, position, hosts) end)
  if err then return fail("value", ("'%s', %s"):format(text, err)) end
  return hosts
end

-- Adds slots of a host to a list of {host, slots}; a host that is there already gets more.
local function add(list, host, slots)
  for _, entry in ipairs(list) do
    if entry.host == host then
      entry.slots = entry.slots + slots
      return
    end
  end
  list[#list + 1] = {host = host, slots = slots}
end

-- Splits "host:2", "user@host", "[::1]:2" and "host[1-4]:2"; an address of IPv6 without brackets has no slots.
local function split_slots(item)
  local literal, slots = item:match "^%[([%x:%.%%%w]*:[%x:%.%%%w]*)%](.*)$"
  if literal then return {literal}, slots end
  local _, num_colons = item:gsub(":", "")
  if num_colons > 1 then return {item}, "" end
  local host, rest = item:match "^(.-)(:.*)$"
  return nil, rest or "", host or item
end

local function count_slots(text)
  if text == "" then return 1 end
  local slots = tonumber(text:match "^:(%d+)$")
  if slots and slots >= 1 and slots <= MAX_HOSTS then return slots end
end

local function add_item(list, item, position)
  local hosts, slots_text, pattern = split_slots(item)
  local slots = count_slots(slots_text)
  if not slots then
    return at(position + #item - #slots_text, ("expected ':' and a number of slots from 1, got '%s'"):format(slots_text))
  end
  if not hosts then
    hosts = {}
    local err = expand_item(pattern, position, hosts)
    if err then return err end
  end
  for _, host in ipairs(hosts) do
    if host:sub(1, 1) == "-" then return at(position, "the name of a host cannot start with '-'") end
    add(list, host, slots)
  end
end

--- Reads "a:2,b:2,c[1-3]:4"; without a number a host has one slot, and one that is named again gets more.
---@param text string
---@return {host: string, slots: integer}[]|nil
---@return table|nil err
function M.parse(text)
  local list = {}
  local err = each_item(text, function(item, position) return nil, add_item(list, item, position) end)
  if err then return fail("value", ("'%s', %s"):format(text, err)) end
  return list
end

local function read_line(list, line)
  local words = {}
  for word in line:gsub("#.*$", ""):gmatch "%S+" do words[#words + 1] = word end
  if #words == 0 then return end
  local item, slots = words[1], nil
  for i = 2, #words do
    local key, value = words[i]:match "^([%w_%-]+)=(.*)$"
    if key ~= "slots" and key ~= "max_slots" and key ~= "max-slots" then
      return ("expected slots=N after the host, got '%s'"):format(words[i])
    end
    if key == "slots" then
      slots = value:match "^0*[1-9]%d*$"
      if not slots then return ("slots: expected a number from 1, got '%s'"):format(value) end
    end
  end
  if slots and item:find ":%d+$" and select(2, item:gsub(":", "")) == 1 then return "slots are given twice" end
  if slots then
    local is_bare_ipv6 = item:find(":", 1, true) and item:sub(1, 1) ~= "["
    item = (is_bare_ipv6 and "[" .. item .. "]" or item) .. ":" .. slots
  end
  return add_item(list, item, 1)
end

--- Reads the text of a host file: lines "host", "host slots=N" or "host:N"; `#` starts a comment, a host's lines add up.
---@param text string
---@param name string the file's name, for messages
---@return {host: string, slots: integer}[]|nil
---@return table|nil err
function M.parse_file(text, name)
  local list, number = {}, 0
  for line in (text .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    local err = read_line(list, line)
    if err then return fail("format", ("%s line %d: %s"):format(name, number, err)) end
  end
  if #list == 0 then return fail("format", name .. " names no host") end
  return list
end

return M
